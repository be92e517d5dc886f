// Starts the cluster of all tests, and removes it afterward.
import { fileURLToPath } from 'node:url';
import { createTokens, hactl, isOwn, removeSandbox, startSandbox } from './sandbox';

export default function setup(): () => void {
  if (isOwn) {
    removeSandbox();
    startSandbox();
  }
  createTokens();
  hactl('apply', '-f', fileURLToPath(new URL('objects.yaml', import.meta.url)), '--wait', '--timeout', '2m');
  return () => {
    if (isOwn) removeSandbox();
  };
}
