// The user of the page: name, permissions by the API's own reviews, and the sign-in by token.
import { ApiError, client } from '../api/client';
import { Signal } from './signal';

interface ResourceRule {
  verbs: string[];
  apiGroups: string[];
  resources: string[];
}

export interface User {
  name: string;
  groups: string[];
  rules: ResourceRule[];
}

export type SessionState =
  | { phase: 'checking' }
  | { phase: 'signedOut'; message: string }
  | { phase: 'unreachable'; message: string }
  | { phase: 'signedIn'; user: User };

export const session = new Signal<SessionState>({ phase: 'checking' });

interface Review<T> {
  status: T;
}

function review<T>(group: string, kind: string, spec: unknown): Promise<{ body: Review<T> }> {
  const plural = `${kind.toLowerCase()}s`;
  const body = { apiVersion: `${group}/v1`, kind, ...(spec === undefined ? {} : { spec }) };
  return client.write<Review<T>>('POST', `/apis/${group}/v1/${plural}`, body);
}

/** Reads the user and the permissions. */
export async function checkSession(): Promise<void> {
  try {
    const [identity, rules] = await Promise.all([
      review<{ userInfo: { username: string; groups?: string[] } }>(
        'authentication.k8s.io',
        'SelfSubjectReview',
        undefined,
      ),
      review<{ resourceRules: ResourceRule[] }>('authorization.k8s.io', 'SelfSubjectRulesReview', {}),
    ]);
    const { username, groups } = identity.body.status.userInfo;
    const user = { name: username, groups: groups ?? [], rules: rules.body.status.resourceRules };
    session.set({ phase: 'signedIn', user });
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) {
      session.set({ phase: 'signedOut', message: error.message });
    } else {
      session.set({ phase: 'unreachable', message: error instanceof Error ? error.message : String(error) });
    }
  }
}

export async function signIn(token: string): Promise<void> {
  client.setToken(token.trim());
  session.set({ phase: 'checking' });
  await checkSession();
  if (session.value.phase === 'signedOut') client.setToken('');
}

export function signOut(): void {
  client.setToken('');
  location.reload();
}

/** An action on a resource of the API, as in an access review. */
export interface Permission {
  verb: string;
  resource: string;
  group?: string;
}

/** Returns `true` if a rule of the user covers the permission. */
export function isAllowed(user: User, permission: Permission): boolean {
  const group = permission.group ?? 'hactl.io';
  const has = (list: string[], wanted: string) => list.includes('*') || list.includes(wanted);
  return user.rules.some(
    (rule) =>
      has(rule.verbs, permission.verb) && has(rule.apiGroups, group) && has(rule.resources, permission.resource),
  );
}

/** Returns the reason why the user may not perform an action; undefined if the action is permitted. */
export function refusal(permission: Permission): string | undefined {
  const state = session.value;
  if (state.phase !== 'signedIn') return 'Not signed in';
  if (isAllowed(state.user, permission)) return undefined;
  return `User ${state.user.name} cannot ${permission.verb} ${permission.resource}`;
}
