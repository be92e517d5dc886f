// The tone in which a state is shown. A tone selects color and symbol; the state itself is always written as a word.
import type { Condition, NodeOverview, Operation, Resource } from '../api/objects';
import { isReady, type Tone } from './headline';

export function serviceTone(resource: Resource): Tone {
  const state = resource.status?.state;
  if (state === 'Error' || state === 'Fence' || state === 'Recovery') return 'bad';
  if ((resource.spec?.state ?? 'Started') !== 'Started') return 'idle';
  return isReady(resource) ? 'ok' : 'warn';
}

export function nodeTone(state: NodeOverview['state'] | undefined): Tone {
  switch (state) {
    case 'Online':
      return 'ok';
    case 'Maintenance':
      return 'warn';
    case 'Unknown':
    case 'Fence':
      return 'bad';
    default:
      return 'idle';
  }
}

export function conditionTone(condition: Condition): Tone {
  const isNegative = condition.type === 'Reconciling' || condition.type === 'Stalled' || condition.type === 'Failed';
  if (condition.status === 'Unknown') return 'warn';
  if ((condition.status === 'True') !== isNegative) return 'ok';
  return condition.type === 'Stalled' || condition.type === 'Ready' || condition.type === 'Failed' ? 'bad' : 'warn';
}

export function phaseTone(phase: NonNullable<Operation['status']>['phase']): Tone {
  switch (phase) {
    case 'Succeeded':
      return 'ok';
    case 'Failed':
    case 'Refused':
      return 'bad';
    default:
      return 'warn';
  }
}
