/** Tells an item that cannot be done from a worker that cannot do anything. */
import type { Overview } from '@/services/model'

type Grid = Overview['grid']
type GridItem = Grid['items'][number]

export function judgeGrid({ workers, items }: Grid): { poisonItems: GridItem[]; badWorkers: string[] } {
  // Two workers at least: one that fails alone could be either's fault.
  const poisonItems = items.filter(item => item.cells.length >= 2 && item.cells.every(cell => cell.failures > 0 && cell.successes === 0))
  const others = items.filter(item => !poisonItems.includes(item))
  const badWorkers = workers.filter(worker => {
    const tried = others.filter(item => item.cells.some(cell => cell.worker === worker))
    const fails = tried.filter(item => item.cells.some(cell => cell.worker === worker && cell.failures > 0 && cell.successes === 0))
    const done = fails.filter(item => item.cells.some(cell => cell.worker !== worker && cell.successes > 0))
    return fails.length >= 2 && fails.length === tried.length && done.length * 2 >= fails.length
  })
  return { poisonItems, badWorkers }
}
