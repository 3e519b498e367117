/** Places steps and edges beside the page's thread: a thousand of them take a while. */
import dagre from '@dagrejs/dagre'

export interface LayoutRequest {
  steps: { name: string; needs: string[] }[]
  width: number
  height: number
}

export type LayoutAnswer = Record<string, { x: number; y: number }>

/** Beyond so many steps the best ranks and orders take seconds, and look no better. */
const MANY = 250

onmessage = ({ data }: MessageEvent<LayoutRequest>) => {
  const { steps, width, height } = data
  const graph = new dagre.graphlib.Graph()
  graph.setGraph({ rankdir: 'LR', nodesep: 14, ranksep: 56, ranker: steps.length > MANY ? 'longest-path' : 'network-simplex' })
  graph.setDefaultEdgeLabel(() => ({}))
  for (const { name } of steps) graph.setNode(name, { width, height })
  for (const { name, needs } of steps) for (const need of needs) graph.setEdge(need, name)
  dagre.layout(graph, { disableOptimalOrderHeuristic: steps.length > MANY })
  const places: LayoutAnswer = {}
  for (const { name } of steps) {
    const { x, y } = graph.node(name)
    places[name] = { x: x - width / 2, y: y - height / 2 }
  }
  postMessage(places)
}
