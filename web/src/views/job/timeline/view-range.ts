/** Which part of the compressed time is on the screen; in the address as times, so that a link shows the same. */
import { useEffect, useRef, useState, type RefObject } from 'react'
import type { TimeScale } from '@/lib/time-scale'
import { useJobSearch } from '../use-job'

export interface ViewRange {
  start: number
  end: number
  zoomed: boolean
  zoom: (factor: number, around?: number) => void
  pan: (part: number) => void
  reset: () => void
}

const NEAREST_MS = 4

export function useViewRange(scale: TimeScale): ViewRange {
  const [search, change] = useJobSearch()
  const [range, setRange] = useState<[number, number] | null>(() =>
    search.from !== undefined && search.to !== undefined ? [search.from, search.to] : null,
  )
  // The address follows when the hand rests: the browser allows few changes of it in a second.
  useEffect(() => {
    const [from, to] = range ?? []
    if (from === search.from && to === search.to) return
    const timer = setTimeout(() => change({ from, to }), 300)
    return () => clearTimeout(timer)
  })
  const start = range ? scale.place(range[0]) : 0
  const end = range ? scale.place(range[1]) : scale.length
  const show = (from: number, to: number) => {
    const width = Math.min(scale.length * 1.05, Math.max(NEAREST_MS, to - from))
    const left = Math.min(Math.max(from, -width * 0.05), Math.max(0, scale.length * 1.05 - width))
    setRange([Math.round(scale.time(left)), Math.round(scale.time(left + width))])
  }
  return {
    start,
    end,
    zoomed: range !== null,
    zoom(factor, around = 0.5) {
      const middle = start + (end - start) * around
      show(middle - (middle - start) * factor, middle + (end - middle) * factor)
    },
    pan(part) {
      const by = (end - start) * part
      show(start + by, end + by)
    },
    reset: () => setRange(null),
  }
}

/** Wheel with a modifier zooms, dragging pans, as maps do. */
export function useGestures(area: RefObject<HTMLElement | null>, labelWidth: number, view: ViewRange): void {
  const latest = useRef(view)
  latest.current = view
  useEffect(() => {
    const element = area.current
    if (!element) return
    let dragFrom: number | null = null
    const width = () => Math.max(1, element.clientWidth - labelWidth)
    const wheel = (event: WheelEvent) => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault()
        const around = (event.clientX - element.getBoundingClientRect().left - labelWidth) / width()
        latest.current.zoom(event.deltaY > 0 ? 1.18 : 1 / 1.18, Math.min(1, Math.max(0, around)))
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault()
        latest.current.pan((event.deltaX || event.deltaY) / width())
      }
    }
    const down = (event: PointerEvent) => {
      const inside = event.clientX - element.getBoundingClientRect().left > labelWidth
      if (event.button === 0 && event.pointerType === 'mouse' && inside) dragFrom = event.clientX
    }
    const moved = (event: PointerEvent) => {
      if (dragFrom === null) return
      if (Math.abs(event.clientX - dragFrom) < 3) return
      latest.current.pan((dragFrom - event.clientX) / width())
      dragFrom = event.clientX
    }
    const up = () => (dragFrom = null)
    element.addEventListener('wheel', wheel, { passive: false })
    element.addEventListener('pointerdown', down)
    addEventListener('pointermove', moved)
    addEventListener('pointerup', up)
    return () => {
      element.removeEventListener('wheel', wheel)
      element.removeEventListener('pointerdown', down)
      removeEventListener('pointermove', moved)
      removeEventListener('pointerup', up)
    }
  }, [area, labelWidth])
}
