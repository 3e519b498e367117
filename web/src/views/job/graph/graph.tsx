/** The steps and what they need. A fan-out is one node that counts its items. */
import '@xyflow/react/dist/style.css'
import { useQuery } from '@tanstack/react-query'
import {
  Background,
  getViewportForBounds,
  ReactFlow,
  ReactFlowProvider,
  useReactFlow,
  useStore,
  useStoreApi,
  ViewportPortal,
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
import { boundsOf, boxesPath, edgesOf, edgesPath, HEIGHT, regionInSight, sameBounds, stepAt, WIDTH, type Point } from './drawing'
import type { LayoutAnswer, LayoutRequest } from './layout-worker'
import { mergeSteps, type StepView } from './steps'
import { StepPanel } from './step-panel'

/** Below this a node shows its state alone. */
const DETAIL_ZOOM = 0.45
/** A graph that would be smaller than this is not shown whole at first. */
const READABLE_ZOOM = 0.55
const LEAST_ZOOM = 0.05
/** A graph with more steps has no elements for them where it is not shown large enough to be read. */
const MANY = 200

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

/** So that who comes back to the graph does not wait for it again. */
const layouts = new WeakMap<Plan, LayoutAnswer>()

function useLayout(plan: Plan): LayoutAnswer | null {
  const [, setPlaced] = useState<Plan | null>(null)
  useEffect(() => {
    if (layouts.has(plan)) return
    const worker = new Worker(new URL('./layout-worker.ts', import.meta.url), { type: 'module' })
    worker.onmessage = ({ data }: MessageEvent<LayoutAnswer>) => {
      layouts.set(plan, data)
      setPlaced(plan)
    }
    const request: LayoutRequest = { steps: plan.steps.map(({ name, needs }) => ({ name, needs })), width: WIDTH, height: HEIGHT }
    worker.postMessage(request)
    return () => worker.terminate()
  }, [plan])
  return layouts.get(plan) ?? null
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
  const many = plan.steps.length > MANY
  const far = useStore(state => many && state.transform[2] < READABLE_ZOOM)
  const nodes = useMemo<StepNode[]>(
    () =>
      places
        ? plan.steps.map(({ name }) => ({
            id: name,
            type: 'step',
            position: places[name] ?? { x: 0, y: 0 },
            width: WIDTH,
            height: HEIGHT,
            measured: { width: WIDTH, height: HEIGHT },
            handles: [],
            data: {},
          }))
        : [],
    [places, plan],
  )
  const order = useMemo(
    () => [...nodes].sort((a, b) => a.position.x - b.position.x || a.position.y - b.position.y).map(node => node.id),
    [nodes],
  )
  const bounds = useMemo(() => boundsOf(places ?? {}), [places])
  const flow = useReactFlow()
  const view = useStoreApi()
  const fit = (least: number, most: number) => {
    const { width, height } = view.getState()
    const all = getViewportForBounds(bounds, width, height, least, most, 0.1)
    // Else they would all be made, to go with the next frame.
    if (many && all.zoom < READABLE_ZOOM) view.getState().setNodes(NO_NODES)
    void flow.setViewport(all)
  }
  const showAll = () => fit(LEAST_ZOOM, 2)
  const focus = (name: string | undefined) => {
    const place = name === undefined ? undefined : places?.[name]
    if (place) void flow.setCenter(place.x + WIDTH / 2, place.y + HEIGHT / 2, { zoom: Math.max(0.7, flow.getZoom()) })
  }
  const open = () => {
    fit(READABLE_ZOOM, 1.1)
    if (flow.getZoom() <= READABLE_ZOOM) focus(search.step ?? interesting(steps))
  }
  const choose = (name: string) => change({ step: name, state: undefined, item: undefined })
  const chooseAt = (at: Point) => {
    const name = places && far ? stepAt(places, flow.screenToFlowPosition(at)) : undefined
    if (name !== undefined) choose(name)
  }
  const move = (by: number) => {
    const next = order[Math.min(order.length - 1, Math.max(0, order.indexOf(search.step ?? '') + by))]
    change({ step: next, state: undefined })
    focus(next)
  }
  useShortcuts('Graph', [
    { keys: 'j', about: 'Next step', run: () => move(1) },
    { keys: 'k', about: 'Previous step', run: () => move(-1) },
    { keys: 'f', about: 'Show all steps', run: showAll },
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
              nodes={far ? NO_NODES : nodes}
              nodeTypes={NODE_TYPES}
              onNodeClick={(_, node) => choose(node.id)}
              onPaneClick={event => chooseAt({ x: event.clientX, y: event.clientY })}
              onInit={open}
              onlyRenderVisibleElements
              nodesDraggable={false}
              nodesConnectable={false}
              nodesFocusable={false}
              elementsSelectable={false}
              minZoom={LEAST_ZOOM}
              proOptions={{ hideAttribution: true }}
            >
              <Background color="var(--line-strong)" gap={22} size={1} />
              <ViewportPortal>
                <svg className="pointer-events-none absolute top-0 left-0 -z-1 size-px overflow-visible" aria-hidden>
                  <Edges plan={plan} places={places} selected={search.step} />
                  {far && <FarSteps steps={steps} places={places} selected={search.step} />}
                </svg>
              </ViewportPortal>
            </ReactFlow>
          </div>
        </Shared>
        <div className="absolute right-3 bottom-3 flex rounded-md border border-line bg-surface">
          <IconButton icon="minus" label="Further away" onClick={() => void flow.zoomOut()} />
          <IconButton icon="plus" label="Nearer" onClick={() => void flow.zoomIn()} />
          <IconButton icon="fit" label="Show all steps" onClick={showAll} />
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

const NO_NODES: StepNode[] = []

const Edges = memo(function Edges({ plan, places, selected }: { plan: Plan; places: LayoutAnswer; selected: string | undefined }) {
  const region = useStore(state => regionInSight(state.transform, state.width, state.height), sameBounds)
  const edges = useMemo(() => edgesOf(plan.steps, places), [plan, places])
  const own = useMemo(() => edges.filter(({ from, to }) => from === selected || to === selected), [edges, selected])
  const all = useMemo(() => edgesPath(edges, region), [edges, region])
  const marked = useMemo(() => edgesPath(own, region), [own, region])
  return (
    <g fill="none" strokeWidth={1.5}>
      <path d={all} style={{ stroke: 'var(--line-strong)' }} />
      <path d={marked} style={{ stroke: 'var(--accent)' }} />
    </g>
  )
})

/** The steps of a large graph from afar: their states alone. */
const FarSteps = memo(function FarSteps(props: { steps: StepView[]; places: LayoutAnswer; selected: string | undefined }) {
  const { steps, places, selected } = props
  const byState = useMemo(() => {
    const found = new Map<string, Point[]>()
    for (const { name, state } of steps) {
      const place = places[name]
      if (!place) continue
      const others = found.get(state)
      if (others) others.push(place)
      else found.set(state, [place])
    }
    return [...found].map(([state, at]) => ({ state, count: at.length, boxes: boxesPath(at, WIDTH), sides: boxesPath(at, 6) }))
  }, [steps, places])
  const chosen = selected === undefined ? undefined : places[selected]
  return (
    <g data-far-steps={steps.length}>
      {byState.map(({ state, count, boxes, sides }) => (
        <g key={state} data-far-state={state} data-far-count={count} style={{ fill: toneFill(state) }}>
          <path d={boxes} strokeWidth={1} style={{ fill: 'var(--surface)', stroke: 'var(--line-strong)' }} />
          <path d={boxes} fillOpacity={0.25} />
          <path d={sides} />
        </g>
      ))}
      {chosen && <path d={boxesPath([chosen], WIDTH)} fill="none" strokeWidth={8} style={{ stroke: 'var(--accent)' }} />}
    </g>
  )
})

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
      <span className="w-1.5 shrink-0" style={{ background: toneFill(step.state) }} />
      {detailed ? <Detail step={step} /> : <span className="grow" style={{ background: toneFill(step.state), opacity: 0.25 }} />}
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
