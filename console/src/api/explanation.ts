// The explanation of a service: the verdict of the scheduler about each node.
import { client } from './client';
import { objectPath, type Explanation } from './objects';

export function readExplanation(name: string): Promise<Explanation> {
  return client.get<Explanation>(`${objectPath('resources', name)}/explain`);
}
