/** The steps and what they need. A fan-out is one node that counts its items. */
import '@xyflow/react/dist/style.css'
import { useQuery } from '@tanstack/react-query'
import {
  Background,
  Handle,
  Position,
  ReactFlow,
  ReactFlowProvider,
  useReactFlow,
  useStore,
  type Edge,
  type Node,
  type NodeProps,
} from '@xyflow/react'
import { createContext, memo, useContext, useEffect, useLayoutEffect, useMemo, useRef, useState, useSyncExternalStore } from 'react'
import { useShortcuts } from '@/app/shortcuts'
import { CountsBar } from '@/components/bars'
import { Icon } from '@/components/icons'
import { StateIcon, toneFill } from '@/components/state'
import { Countdown } from '@/components/time'
import { Failure, IconButton, JobText, Loading } from '@/components/ui'
import { count, shortCount, words } from '@/lib/format'
import { createStore, type Store } from '@/lib/store'
import type { Job, Plan } from '@/services/model'
import { jobQuery, planQuery } from '@/services/queries'
import { useJobId, useJobSearch } from '../use-job'
import type { LayoutAnswer, LayoutRequest } from './layout-worker'
import { mergeSteps, type StepView } from './steps'
import { StepPanel } from './step-panel'

const WIDTH = 208
const HEIGHT = 62
/** Below this a node shows its state alone. */
const DETAIL_ZOOM = 0.45
/** A graph that would be smaller than this is not shown whole at first. */
const READABLE_ZOOM = 0.55
/** Steps of a graph in which the edges of the chosen one are marked. */
const MOST_MARKED = 200

/** What a node shows does not go through the graph: a status each second would lay hands on a thousand nodes. */
interface Shown {
  steps: ReadonlyMap<string, StepView>
  selected: string | undefined
}
const Shared = createContext<Store<Shown>>(createStore<Shown>({ steps: new Map(), selected: undefined }))

type StepNode = Node<Record<string, never>, 'step'>

export default function GraphTab() {
  const id = useJobId()
  const job = useQuery(jobQuery(id))
  const plan = useQuery(planQuery(id))
  if (plan.error) return <Failure error={plan.error} retry={() => void plan.refetch()} />
  if (!job.data || !plan.data) return <Loading what="the graph" />
  return (
    <ReactFlowProvider>
      <Graph job={job.data} plan={plan.data} />
    </ReactFlowProvider>
  )
}

function useLayout(plan: Plan): LayoutAnswer | null {
  const [places, setPlaces] = useState<LayoutAnswer | null>(null)
  useEffect(() => {
    const worker = new Worker(new URL('./layout-worker.ts', import.meta.url), { type: 'module' })
    worker.onmessage = ({ data }: MessageEvent<LayoutAnswer>) => setPlaces(data)
    const request: LayoutRequest = { steps: plan.steps.map(({ name, needs }) => ({ name, needs })), width: WIDTH, height: HEIGHT }
    worker.postMessage(request)
    return () => worker.terminate()
  }, [plan])
  return places
}

function Graph({ job, plan }: { job: Job; plan: Plan }) {
  const places = useLayout(plan)
  const [search, change] = useJobSearch()
  const earlier = useRef<StepView[]>([])
  const steps = useMemo(() => (earlier.current = mergeSteps(job, plan, earlier.current)), [job, plan])
  const [shared] = useState(() => createStore<Shown>({ steps: new Map(), selected: undefined }))
  useLayoutEffect(
    () => shared.set({ steps: new Map(steps.map(step => [step.name, step])), selected: search.step }),
    [shared, steps, search.step],
  )
  const nodes = useMemo<StepNode[]>(
    () =>
      places
        ? plan.steps.map(({ name }) => ({
            id: name,
            type: 'step',
            position: places[name] ?? { x: 0, y: 0 },
            width: WIDTH,
            height: HEIGHT,
            data: {},
          }))
        : [],
    [places, plan],
  )
  const marked = plan.steps.length <= MOST_MARKED ? search.step : undefined
  const edges = useMemo<Edge[]>(
    () =>
      plan.steps.flatMap(step =>
        step.needs.map(need => ({
          id: `${need}>${step.name}`,
          source: need,
          target: step.name,
          focusable: false,
          style: { stroke: need === marked || step.name === marked ? 'var(--accent)' : 'var(--line-strong)', strokeWidth: 1.5 },
        })),
      ),
    [plan, marked],
  )
  const order = useMemo(
    () => [...nodes].sort((a, b) => a.position.x - b.position.x || a.position.y - b.position.y).map(node => node.id),
    [nodes],
  )
  const flow = useReactFlow()
  const focus = (name: string | undefined) => {
    const node = nodes.find(candidate => candidate.id === name)
    if (node) void flow.setCenter(node.position.x + WIDTH / 2, node.position.y + HEIGHT / 2, { zoom: Math.max(0.7, flow.getZoom()) })
  }
  const open = async () => {
    await flow.fitView({ maxZoom: 1.1, minZoom: READABLE_ZOOM, padding: 0.12 })
    if (flow.getZoom() <= READABLE_ZOOM) focus(search.step ?? interesting(steps))
  }
  const move = (by: number) => {
    const next = order[Math.min(order.length - 1, Math.max(0, order.indexOf(search.step ?? '') + by))]
    change({ step: next, state: undefined })
    focus(next)
  }
  useShortcuts('Graph', [
    { keys: 'j', about: 'Next step', run: () => move(1) },
    { keys: 'k', about: 'Previous step', run: () => move(-1) },
    { keys: 'f', about: 'Show all steps', run: () => void flow.fitView() },
    { keys: '+', about: 'Nearer', run: () => void flow.zoomIn() },
    { keys: '-', about: 'Further away', run: () => void flow.zoomOut() },
    { keys: 'Escape', about: 'Close the step', run: () => change({ step: undefined, item: undefined }) },
  ])
  if (!places) return <Loading what={`the places of ${count(plan.steps.length)} steps`} />
  const selected = steps.find(step => step.name === search.step)
  return (
    <div className="flex min-h-[420px] grow flex-col lg:flex-row">
      <div className="relative min-h-80 grow" data-graph={steps.length}>
        <Shared value={shared}>
          <div className="absolute inset-0">
            <ReactFlow
              nodes={nodes}
              edges={edges}
              nodeTypes={NODE_TYPES}
              onNodeClick={(_, node) => change({ step: node.id, state: undefined, item: undefined })}
              onInit={() => void open()}
              onlyRenderVisibleElements
              nodesDraggable={false}
              nodesConnectable={false}
              nodesFocusable={false}
              elementsSelectable={false}
              minZoom={0.05}
              proOptions={{ hideAttribution: true }}
            >
              <Background color="var(--line-strong)" gap={22} size={1} />
            </ReactFlow>
          </div>
        </Shared>
        <div className="absolute right-3 bottom-3 flex rounded-md border border-line bg-surface">
          <IconButton icon="minus" label="Further away" onClick={() => void flow.zoomOut()} />
          <IconButton icon="plus" label="Nearer" onClick={() => void flow.zoomIn()} />
          <IconButton icon="fit" label="Show all steps" onClick={() => void flow.fitView()} />
        </div>
      </div>
      {selected && <StepPanel job={job} step={selected} onClose={() => change({ step: undefined, item: undefined, state: undefined })} />}
    </div>
  )
}

/** Where to look first in a graph that does not fit: what failed, else what runs, else the beginning. */
function interesting(steps: StepView[]): string | undefined {
  const of = (state: string) => steps.find(step => step.state === state)?.name
  return of('failed') ?? of('running') ?? steps[0]?.name
}

const NODE_TYPES = { step: memo(StepBox) }

function StepBox({ id }: NodeProps<StepNode>) {
  const shared = useContext(Shared)
  const step = useSyncExternalStore(shared.subscribe, () => shared.get().steps.get(id))
  const selected = useSyncExternalStore(shared.subscribe, () => shared.get().selected === id)
  const detailed = useStore(state => state.transform[2] > DETAIL_ZOOM)
  if (!step) return null
  const frame = selected ? 'border-accent ring-2 ring-(--focus)' : 'border-line-strong'
  return (
    <div
      data-step={step.name}
      data-step-state={step.state}
      className={`flex h-full w-full overflow-hidden rounded-lg border bg-surface text-left ${frame}`}
    >
      <Handle type="target" position={Position.Left} className="opacity-0!" />
      <span className="w-1.5 shrink-0" style={{ background: toneFill(step.state) }} />
      {detailed ? <Detail step={step} /> : <span className="grow" style={{ background: toneFill(step.state), opacity: 0.25 }} />}
      <Handle type="source" position={Position.Right} className="opacity-0!" />
    </div>
  )
}

function Detail({ step }: { step: StepView }) {
  return (
    <span className="flex min-w-0 grow flex-col justify-center gap-1 px-2.5">
      <span className="flex items-center gap-1.5">
        <StateIcon state={step.state} label={words(step.state)} />
        <JobText className="min-w-0 grow truncate font-semibold">{step.name}</JobText>
        {step.goal && <Icon name="goal" size={11} label="goal" className="text-muted" />}
      </span>
      {step.items > 1 || step.fanOut ? (
        <span className="flex items-center gap-2 text-[0.9em] text-muted">
          <span className="grow">
            <CountsBar counts={step.counts} />
          </span>
          {shortCount(step.counts.succeeded ?? 0)} of {shortCount(step.items)}
        </span>
      ) : (
        <span className="flex items-center justify-between gap-2 text-[0.9em] text-muted">
          <span className="truncate">{step.skippedBecause ? `without ${step.skippedBecause}` : words(step.state)}</span>
          {step.retryAt !== null ? (
            <span className="text-waiting">
              in <Countdown to={step.retryAt} />
            </span>
          ) : (
            step.attempts > 1 && <span>{step.attempts} attempts</span>
          )}
        </span>
      )}
      {step.runs.length > 1 && (
        <span className="flex gap-1.5 text-[0.82em] text-muted">
          {step.runs.map(run => (
            <span key={run.datacenter} className="flex items-center gap-0.5" title={run.datacenter}>
              <StateIcon state={run.state} size={10} label={`${run.datacenter}: ${run.state}`} />
              <span className="max-w-14 truncate">{run.datacenter}</span>
            </span>
          ))}
        </span>
      )}
    </span>
  )
}
