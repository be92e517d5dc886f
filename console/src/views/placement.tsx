// The placement view: nodes as columns, services as blocks; drag a block to migrate it, press a node to simulate its failure.
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { requestConfirmation } from '../actions/run';
import { migrate } from '../actions/services';
import { client } from '../api/client';
import type { AffinityRule, Node, PlacementHistory, Plan } from '../api/objects';
import {
  afterFailure,
  bestDimension,
  nodeColumns as layoutColumns,
  failureOf,
  movesOf,
  relations,
  unplaced,
  type Block,
  type Column,
  type Dimension,
  type Failure,
  type Move,
  type Relation,
} from '../derive/placement';
import { rewind } from '../derive/replay';
import { bytesText, coresText } from '../derive/quantity';
import { nodeTone } from '../derive/tones';
import { Card, Empty, Loading, ObjectLink, PageTitle, State } from '../parts/basics';
import { dropRefusal, useDrag, type Drag } from '../parts/drag';
import { useMoveAnimation } from '../parts/move-animation';
import { Icon } from '../parts/icon';
import { TargetDialog } from '../parts/move';
import { Replay } from '../parts/replay';
import { address, navigate, setParameters, type Route } from '../router';
import { history, overview, reservation, usage, useObjects, usePolled } from '../state/cluster';
import { refusal } from '../state/session';
import { useSignal } from '../state/signal';
import { Aggregated } from './placement-groups';

/** Height of the largest node, in pixels. */
const BOARD_HEIGHT_PIXELS = 380;
/** Number of services above which the view begins with groups of nodes. */
const MAX_BLOCKS = 3000;
/** Number of services that a column shows as blocks. */
const MAX_COLUMN_BLOCKS = 500;

const VALUE_TEXTS: Record<Dimension, (value: number) => string> = {
  memory: bytesText,
  cpu: coresText,
  count: (value) => `${value}`,
};

export function PlacementView({ route }: { route: Route }) {
  const { value } = usePolled(overview);
  const amounts = usePolled(usage).value;
  const report = usePolled(reservation).value;
  const resources = useObjects('resources');
  const nodes = useObjects('nodes');
  const rules = useObjects('affinityrules');
  const failing = route.parameters.get('fail') ?? '';
  const failure = failing === '' ? undefined : failureOf(failing, report);
  const otherMoves = useOtherMoves(failure, nodes ?? []);
  const [replay, setReplay] = useState<number | undefined>(undefined);
  const recorded = useHistory(replay !== undefined);
  if (value === undefined || amounts === undefined || resources === undefined || nodes === undefined) return <Loading />;
  const chosen = route.parameters.get('size') as Dimension | null;
  const dimension = chosen ?? bestDimension(amounts);
  const isReplay = replay !== undefined && recorded !== undefined;
  const moment = isReplay ? rewind({ resources, overview: value }, recorded.changes, replay) : { resources, overview: value };
  const before = layoutColumns({ ...moment, usage: amounts, nodes, report: isReplay ? undefined : report }, dimension);
  const shown = failing === '' || replay !== undefined ? before : afterFailure(before, failing, failure, otherMoves);
  const toggle = (node: string) => setParameters(route, { fail: node === failing ? '' : node });
  return (
    <>
      <PageTitle title="Placement">
        <label class="inline">
          Size by
          <select value={dimension} onChange={(event) => setParameters(route, { size: event.currentTarget.value })}>
            <option value="memory">requested memory</option>
            <option value="cpu">requested cores</option>
            <option value="count">number of services</option>
          </select>
        </label>
        {!isReplay && (
          <button type="button" onClick={() => setReplay(Infinity)}>
            Replay the last hour
          </button>
        )}
        {failing !== '' && !isReplay && (
          <button type="button" class="primary" onClick={() => toggle(failing)}>
            End the simulation
          </button>
        )}
      </PageTitle>
      {isReplay && (
        <Replay history={recorded} time={Math.min(replay, Date.parse(recorded.at))} change={setReplay} end={() => setReplay(undefined)} />
      )}
      {failing !== '' && !isReplay && report !== undefined && <FailureText node={failing} item={failure} otherMoves={otherMoves} />}
      {before.length === 0 ? (
        <Empty>No nodes.</Empty>
      ) : (
        <Aggregated shown={shown} route={route} dimension={dimension} isAggregated={resources.length > MAX_BLOCKS}>
          {(columns) => (
            <Board shown={columns} dimension={dimension} rules={rules ?? []} simulated={failing !== '' || isReplay} isReplay={isReplay} toggle={toggle} />
          )}
        </Aggregated>
      )}
      <Unplaced blocks={unplaced(moment.resources)} />
      <p class="quiet legend">
        <span>
          <i class="swatch headroom" /> Capacity that a failure of another node would use
        </span>
        <span>
          <i class="swatch free" /> Free capacity
        </span>
      </p>
    </>
  );
}

/** Returns the changes of the last hour, and reads them while the replay is shown. */
function useHistory(isShown: boolean): PlacementHistory | undefined {
  const state = useSignal(history.state);
  useEffect(() => (isShown ? history.open() : undefined), [isShown]);
  return state.value;
}

/**
 * Returns the moves of the services that could run elsewhere although some could not. The report does not contain these moves,
 * so the server plans a maintenance of the node.
 */
function useOtherMoves(failure: Failure | undefined, nodes: Node[]): Move[] {
  const [moves, setMoves] = useState<Move[]>([]);
  const name = failure === undefined || failure.verdict === 'Survives' ? '' : (failure.nodes[0] ?? '');
  const node = nodes.find((item) => item.metadata.name === name);
  const generation = node?.metadata.generation;
  useEffect(() => {
    setMoves([]);
    if (node === undefined) return undefined;
    let current = true;
    const changed = { ...node, spec: { ...node.spec, maintenance: true } };
    client.write<Plan>('POST', '/apis/hactl.io/v1/plan', { objects: [changed] }).then(
      ({ body }) => {
        if (current) setMoves(movesOf(body, name));
      },
      () => undefined,
    );
    return () => {
      current = false;
    };
  }, [name, generation, failure?.withoutPlace?.length]);
  return moves;
}

function FailureText({ node, item, otherMoves }: { node: string; item: Failure | undefined; otherMoves: Move[] }) {
  if (item === undefined) {
    return (
      <div class="banner warn" role="status">
        <Icon name="warn" />
        <span>The server has not simulated a failure of {node}, because the node runs no services or is not available.</span>
      </div>
    );
  }
  const isFatal = item.verdict === 'Fails';
  return (
    <div class={isFatal ? 'banner bad' : 'banner ok'} role="status">
      <Icon name={isFatal ? 'bad' : 'ok'} />
      <div>
        <strong>If {node} fails now:</strong> {item.because}.
        {(item.withoutPlace ?? []).map((service) => (
          <p key={service.resource}>
            <strong>{service.resource}</strong> cannot run:{' '}
            {service.lacks.map((lack) => `${lack.node}: ${lack.message}`).join('; ')}
            {service.more > 0 ? `; ${service.more} more nodes` : ''}
          </p>
        ))}
        {(item.makeRoom ?? []).map((move) => (
          <p key={move.resource}>
            {move.resource} is preempted: {move.from} → {move.to}
          </p>
        ))}
        <MoveList title="Moves" moves={item.moves ?? []} />
        <MoveList title="Other services, scheduled as for maintenance" moves={otherMoves} />
      </div>
    </div>
  );
}

function MoveList({ title, moves }: { title: string; moves: Move[] }) {
  if (moves.length === 0) return null;
  return (
    <p>
      {title}: {moves.map((move) => `${move.resource} → ${move.to}`).join(', ')}
    </p>
  );
}

interface BoardProps {
  shown: Column[];
  dimension: Dimension;
  rules: AffinityRule[];
  simulated: boolean;
  isReplay: boolean;
  toggle: (node: string) => void;
}

function Board({ shown, dimension, rules, simulated, isReplay, toggle }: BoardProps) {
  const board = useRef<HTMLDivElement>(null);
  const [target, setTarget] = useState<string | undefined>(undefined);
  const [pointed, setPointed] = useState<string | undefined>(undefined);
  const drop = useCallback((name: string, node: string) => requestConfirmation([migrate(name, node)]), []);
  const { drag, press, wasDragged } = useDrag(drop);
  useMoveAnimation(board, shown.map((column) => column.blocks.map((block) => block.name).join()).join(';'));
  const refused = refusal({ verb: 'create', resource: 'operations/Migrate' });
  const { related, sentences } = useMemo(
    () => (pointed === undefined ? { related: [], sentences: [] } : relations(pointed, rules)),
    [pointed, rules],
  );
  const largest = Math.max(1, ...shown.map((column) => column.capacity));
  const groups = [...new Set(shown.map((column) => column.group))];
  const canDrag = refused === undefined && !simulated;
  return (
    <>
      <div class={drag === undefined ? 'board' : 'board dragging'} ref={board} onKeyDown={moveFocus}>
        {groups.map((group) => (
          <section key={group} class="lane" aria-label={group === '' ? 'Nodes' : `Node group ${group}`}>
            {group !== '' && <h2>{group}</h2>}
            <div class="columns">
              {shown
                .filter((column) => column.group === group)
                .map((column) => (
                  <ColumnBox
                    key={column.node}
                    column={column}
                    scale={dimension === 'count' ? 0 : BOARD_HEIGHT_PIXELS / largest}
                    dimension={dimension}
                    drag={drag}
                    related={related}
                    toggle={() => !isReplay && toggle(column.node)}
                    point={setPointed}
                    press={canDrag ? press : undefined}
                    open={(name) => {
                      if (isReplay) navigate(address(['resources', name]));
                      else if (!wasDragged()) setTarget(name);
                    }}
                  />
                ))}
            </div>
          </section>
        ))}
      </div>
      <p class="quiet hint" role="status">
        {sentences.length > 0
          ? sentences.join('. ')
          : refused !== undefined
            ? `Services cannot be dragged: ${refused}.`
            : isReplay
              ? 'The replay shows the past. End the replay to move services.'
              : 'Drag a service to another node, or select it with Enter. Select the name of a node to simulate its failure.'}
      </p>
      {drag !== undefined && <DragPreview drag={drag} />}
      {target !== undefined && <TargetDialog names={[target]} kind="Migrate" onClose={() => setTarget(undefined)} />}
    </>
  );
}

/** Moves the focus between blocks: up and down within a node, left and right between nodes. */
function moveFocus(event: KeyboardEvent): void {
  const block = (event.target as HTMLElement).closest<HTMLElement>('.block');
  const column = block?.closest<HTMLElement>('[data-node]');
  if (block == null || column == null) return;
  const blocks = [...column.querySelectorAll<HTMLElement>('.block')];
  const columns = [...document.querySelectorAll<HTMLElement>('[data-node]')].filter((element) => element.querySelector('.block') !== null);
  let next: HTMLElement | null | undefined;
  if (event.key === 'ArrowUp') next = blocks[blocks.indexOf(block) + 1];
  else if (event.key === 'ArrowDown') next = blocks[blocks.indexOf(block) - 1];
  else if (event.key === 'ArrowRight') next = columns[columns.indexOf(column) + 1]?.querySelector<HTMLElement>('.block');
  else if (event.key === 'ArrowLeft') next = columns[columns.indexOf(column) - 1]?.querySelector<HTMLElement>('.block');
  else return;
  event.preventDefault();
  next?.focus();
}

interface ColumnProps {
  column: Column;
  /** Pixels for one unit; 0 if all blocks have the same height. */
  scale: number;
  dimension: Dimension;
  drag: Drag | undefined;
  related: Relation[];
  toggle: () => void;
  point: (name: string | undefined) => void;
  press: ((name: string, event: PointerEvent) => void) | undefined;
  open: (name: string) => void;
}

function ColumnBox(props: ColumnProps) {
  const { column, scale, dimension, drag, toggle } = props;
  const reasons = drag === undefined ? undefined : dropRefusal(drag, column.node);
  const isKnown = drag?.explanation !== undefined;
  const isCurrent = drag?.explanation?.nodes.some((candidate) => candidate.node === column.node && candidate.current) === true;
  const dropClass = drag === undefined || !isKnown || isCurrent ? '' : reasons === undefined ? ' eligible' : ' forbidden';
  const over = drag?.over === column.node ? ' over' : '';
  const height = scale === 0 ? undefined : { minHeight: `${Math.max(60, column.capacity * scale)}px` };
  const show = VALUE_TEXTS[dimension];
  return (
    <div class={`column${dropClass}${over}${column.failed ? ' failed' : ''}`} data-node={column.node}>
      <button type="button" class="column-title" aria-pressed={column.failed} onClick={toggle}>
        <strong>{column.node}</strong>
        <span class="hidden-text">: simulate a failure</span>
      </button>
      <span class="column-facts">
        <State tone={column.failed ? 'bad' : nodeTone(column.state as 'Online')}>{column.failed ? 'Failed' : column.state}</State>
        <span class="quiet number">
          {dimension === 'count'
            ? `${column.blocks.length} ${column.blocks.length === 1 ? 'service' : 'services'}`
            : `${show(column.blocks.reduce((sum, block) => sum + block.size, 0))} of ${show(column.capacity)}`}
        </span>
      </span>
      <div class="column-body" style={height}>
        {reasons !== undefined && <p class="column-reason">{reasons.join('; ')}</p>}
        {scale > 0 && !column.failed && column.headroom > 0 && (
          <div
            class="headroom"
            style={{ height: `${column.headroom * scale}px` }}
            role="img"
            aria-label={`Headroom for a failure: ${show(column.headroom)}`}
          />
        )}
        <Blocks {...props} />
      </div>
    </div>
  );
}

function Blocks(props: ColumnProps) {
  const { blocks } = props.column;
  const rest = blocks.length - MAX_COLUMN_BLOCKS;
  return (
    <>
      {blocks.slice(0, MAX_COLUMN_BLOCKS).map((block) => (
        <BlockBox key={block.name} block={block} {...props} />
      ))}
      {rest > 0 && <div class="block idle">{rest} more services</div>}
    </>
  );
}

function BlockBox({ block, scale, dimension, related, drag, point, press, open }: ColumnProps & { block: Block }) {
  const relation = related.find((item) => item.name === block.name);
  const classes = [
    'block',
    block.blockingReasons === undefined ? block.tone : 'bad',
    block.movedFrom === undefined ? '' : 'moved',
    drag?.name === block.name ? 'dragged' : '',
    relation === undefined ? '' : relation.kind === 'Positive' ? 'together' : 'apart',
  ];
  const size = dimension === 'count' ? '' : `, ${VALUE_TEXTS[dimension](block.size)}`;
  const detail =
    block.blockingReasons !== undefined
      ? 'no eligible node'
      : block.movedFrom !== undefined
        ? `from ${block.movedFrom}`
        : block.state;
  return (
    <button
      type="button"
      class={classes.filter((className) => className !== '').join(' ')}
      data-name={block.name}
      style={scale === 0 ? undefined : { height: `${Math.max(22, block.size * scale)}px` }}
      title={[`${block.name}: ${detail}${size}`, ...(block.blockingReasons ?? [])].join('\n')}
      onPointerDown={(event) => press?.(block.name, event)}
      onPointerEnter={() => point(block.name)}
      onPointerLeave={() => point(undefined)}
      onFocus={() => point(block.name)}
      onBlur={() => point(undefined)}
      onClick={() => open(block.name)}
    >
      <Icon name={block.blockingReasons !== undefined ? 'bad' : block.movedFrom !== undefined ? 'move' : block.tone} />
      <span class="block-name">{block.name}</span>
      <span class="block-detail">{detail}</span>
    </button>
  );
}

/** The dragged block under the pointer, with the verdict about the node below it. */
function DragPreview({ drag }: { drag: Drag }) {
  const reasons = drag.over === undefined ? undefined : dropRefusal(drag, drag.over);
  const text =
    drag.explanation === undefined
      ? 'Reading eligible nodes…'
      : drag.over === undefined
        ? 'Drop on a node'
        : reasons === undefined
          ? `Migrate to ${drag.over}`
          : reasons.join('; ');
  return (
    <div class={reasons === undefined ? 'ghost' : 'ghost refused'} style={{ left: `${drag.x}px`, top: `${drag.y}px` }} role="status">
      <strong>{drag.name}</strong>
      <span>{text}</span>
    </div>
  );
}

function Unplaced({ blocks }: { blocks: Block[] }) {
  if (blocks.length === 0) return null;
  return (
    <Card title="Not on a node" wide>
      <ul class="rows">
        {blocks.map((block) => (
          <li key={block.name}>
            <State tone={block.tone}>{block.state}</State>
            <ObjectLink kind="resource" name={block.name} />
          </li>
        ))}
      </ul>
    </Card>
  );
}
