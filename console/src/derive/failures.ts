// The failures of the guided tour, each with an explanation of the reaction of the cluster.
import type { SimulatedMachine } from '../state/simulation';

export interface Failure {
  title: string;
  action: string;
  /** Action that ends the failure; undefined if it ends by itself. */
  repair?: string;
  explanation: string;
}

/** Returns five failures of the machines that are up, each with a different machine where possible. */
export function failures(machines: SimulatedMachine[]): Failure[] {
  const up = machines.filter((machine) => machine.isUp);
  const busy = up.filter((machine) => machine.services.length > 0);
  const name = (index: number) => (busy[index % busy.length] ?? up[0] ?? machines[0])?.name ?? '';
  const service = busy.flatMap((machine) => machine.services)[0];
  const list: Failure[] = [
    {
      title: 'A machine loses power',
      action: `power ${name(1)} off`,
      repair: `power ${name(1)} on`,
      explanation:
        'The services and the heartbeats of the machine end immediately. The leader cannot determine whether the machine failed ' +
        'or only its network, so it waits for the fencing delay. By then, the watchdog would have reset a machine that still ran, ' +
        'and none of its services can run. Then the services start on other nodes.',
    },
    {
      title: 'A node is isolated from the network',
      action: `network ${name(2)} off`,
      repair: `network ${name(2)} on`,
      explanation:
        'The machine still runs, but cannot commit heartbeats. Its agent stops the services before the last heartbeat expires. ' +
        'If the agent were too slow, the watchdog would reset the machine. The leader waits until such a reset would have ' +
        'happened, and then starts the services on other nodes. No service runs twice.',
    },
    {
      title: 'An agent hangs',
      action: `agent ${name(0)} hang`,
      repair: `agent ${name(0)} resume`,
      explanation:
        'The services still run, but nothing controls them. The watchdog daemon pets the device only up to the deadline of the last ' +
        'heartbeat. Then the device resets the machine, which ends the services. The services start on other nodes.',
    },
    {
      title: 'etcd does not answer for 40 seconds',
      action: 'store outage 40s',
      explanation:
        'No heartbeat can be committed. Each agent requests an etcd-outage hold: a controller that grants the hold does not fence ' +
        'the node before the hold ends. All controllers grant it, so all services continue to run. No service can be started or ' +
        'moved until etcd answers.',
    },
  ];
  if (service !== undefined) {
    list.push({
      title: 'A service crashes',
      action: `crash ${service}`,
      explanation:
        'The agent detects the end of the process and reports it. The leader orders a restart on the same node. A service that ' +
        'crashes repeatedly moves to another node.',
    });
  }
  return list;
}
