// The sign-in by token, and the page while no controller answers.
import { useEffect, useState } from 'preact/hooks';
import { checkSession, signIn } from '../state/session';

export function SignIn({ message }: { message: string }) {
  const [token, setToken] = useState('');
  const first = message.includes('no client certificate and no token');
  return (
    <main class="alone">
      <form
        class="sign-in"
        onSubmit={(event) => {
          event.preventDefault();
          void signIn(token);
        }}
      >
        <svg viewBox="0 0 32 32" width="44" height="44" aria-hidden="true" class="logo">
          <rect width="32" height="32" rx="8" />
          <path d="M9 23V9m0 7h14m0-7v14" />
        </svg>
        <h1>Sign in to hactl</h1>
        {!first && (
          <p class="state bad" role="alert">
            {message}
          </p>
        )}
        <label>
          Token
          <input
            type="password"
            autocomplete="off"
            autofocus
            required
            value={token}
            onInput={(event) => setToken(event.currentTarget.value)}
          />
        </label>
        <button type="submit" class="primary">
          Sign in
        </button>
        <p class="quiet">
          The token stays in this tab until you close it. An administrator creates a token with{' '}
          <code>hactl token create</code>. With a client certificate in the browser, no token is necessary.
        </p>
      </form>
    </main>
  );
}

export function Unreachable({ message }: { message: string }) {
  useEffect(() => {
    const timer = setInterval(() => void checkSession(), 2000);
    return () => clearInterval(timer);
  }, []);
  return (
    <main class="alone">
      <div class="sign-in" role="alert">
        <h1>No controller answers</h1>
        <p>{message}</p>
        <p class="quiet">Trying again every 2 s.</p>
      </div>
    </main>
  );
}
