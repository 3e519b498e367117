/** uPlot in the colours of the theme. */
import 'uplot/dist/uPlot.min.css'
import { useEffect, useRef } from 'react'
import uPlot from 'uplot'
import { theme } from '@/app/theme'
import { clockTime } from '@/lib/format'
import { useStore } from '@/lib/store'

export interface Series {
  label: string
  /** A colour of the theme: `--succeeded-solid`. */
  color: string
  values: (number | null)[]
  dash?: number[]
}

interface Props {
  title: string
  times: number[]
  series: Series[]
  format: (value: number) => string
  /** What the numbers of the last minutes come to, in words. */
  summary: string
}

const HEIGHT = 134

export function Chart({ title, times, series, format, summary }: Props) {
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const chosen = useStore(theme)
  const shape = series.map(one => one.label).join()
  useEffect(() => {
    const element = box.current
    if (!element) return
    plot.current = new uPlot(options(element.clientWidth, series, format), [[], ...series.map(() => [])] as uPlot.AlignedData, element)
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }))
    observer.observe(element)
    return () => {
      observer.disconnect()
      plot.current?.destroy()
    }
  }, [shape, chosen])
  useEffect(() => {
    plot.current?.setData([times.map(at => at / 1000), ...series.map(one => one.values)] as uPlot.AlignedData)
  })
  return (
    <section className="card min-w-0 p-3">
      <div className="mb-1 flex flex-wrap items-baseline gap-x-3">
        <h2 className="font-semibold">{title}</h2>
        <ul className="flex flex-wrap gap-x-3 text-[0.92em] text-muted">
          {series.map(one => (
            <li key={one.label} className="flex items-center gap-1.5">
              <svg width="14" height="8" aria-hidden>
                <line x1="0" x2="14" y1="4" y2="4" stroke={`var(${one.color})`} strokeWidth="2.5" strokeDasharray={one.dash?.join(' ')} />
              </svg>
              {one.label}
            </li>
          ))}
        </ul>
      </div>
      <div ref={box} role="img" aria-label={`${title}: ${summary}`} className="w-full overflow-hidden" />
    </section>
  )
}

function options(width: number, series: Series[], format: (value: number) => string): uPlot.Options {
  const color = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim()
  const axis = {
    stroke: color('--muted'),
    grid: { stroke: color('--line'), width: 1 },
    ticks: { show: false },
    font: '11px ui-sans-serif, system-ui, sans-serif',
  }
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    padding: [10, 14, 0, 0],
    cursor: { y: false, points: { size: 6 } },
    scales: { x: { time: true }, y: { range: (_, __, most) => [0, Math.max(1, most * 1.1)] } },
    axes: [
      { ...axis, size: 24, space: 70, values: (_, splits) => splits.map(at => axisTime(at * 1000, splits)) },
      { ...axis, size: 46, space: 24, values: (_, splits) => splits.map(value => (value === Math.round(value) ? format(value) : '')) },
    ],
    series: [
      {},
      ...series.map(one => ({
        label: one.label,
        stroke: color(one.color),
        width: 1.8,
        dash: one.dash,
        points: { show: one.values.includes(null), size: 4 },
      })),
    ],
  }
}

/** With seconds where whole minutes would be the same twice. */
function axisTime(at: number, splits: number[]): string {
  const apart = (splits[1] ?? 0) - (splits[0] ?? 0)
  return apart >= 60 ? clockTime(at).slice(0, 5) : clockTime(at)
}
