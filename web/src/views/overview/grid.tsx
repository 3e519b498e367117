/** Failures by item and worker. A row red over all workers is an item that nobody can do; a red column is a worker that can do nothing. */
import { Link } from '@tanstack/react-router'
import { Icon } from '@/components/icons'
import { JobText } from '@/components/ui'
import type { Overview } from '@/services/model'
import { judgeGrid } from '@/lib/grid'

export function FailureGrid({ grid }: { grid: Overview['grid'] }) {
  const { items, workers } = grid
  if (items.length === 0) return <p className="px-3 py-4 text-muted">Nothing has failed within this time.</p>
  const { poisonItems, badWorkers } = judgeGrid(grid)
  return (
    <>
      <p className="flex flex-wrap gap-x-4 px-3 py-2" data-grid-verdict>
        {poisonItems.length > 0 && (
          <span className="flex items-center gap-1.5 text-failed">
            <Icon name="stuck" />
            {poisonItems.length === 1 ? 'An item fails' : `${poisonItems.length} items fail`} on every worker that tried
          </span>
        )}
        {badWorkers.length > 0 && (
          <span className="flex items-center gap-1.5 text-lost">
            <Icon name="quarantined" />
            <JobText>{`${badWorkers.join(', ')} fails what others can do`}</JobText>
          </span>
        )}
        {poisonItems.length + badWorkers.length === 0 && <span className="text-muted">Neither one item nor one worker stands out.</span>}
      </p>
      <div tabIndex={0} role="region" aria-label="Failures by item and worker" className="overflow-auto px-3 pb-3">
        <table className="border-separate border-spacing-0.5">
          <thead>
            <tr>
              <th scope="col" className="text-left font-normal text-muted">
                item
              </th>
              {workers.map(worker => (
                <th
                  key={worker}
                  scope="col"
                  className={`max-w-20 truncate px-1 font-normal ${badWorkers.includes(worker) ? 'text-lost' : 'text-muted'}`}
                >
                  {worker}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {items.map(item => {
              const { name } = item
              const poison = poisonItems.includes(item)
              return (
                <tr key={`${item.job}/${name}`}>
                  <th scope="row" className="max-w-52 truncate pr-3 text-left font-normal">
                    <Link
                      to="/jobs/$id"
                      params={{ id: item.job }}
                      search={{ tab: 'why' }}
                      className={`hover:underline ${poison ? 'font-semibold text-failed' : ''}`}
                    >
                      <JobText>{name}</JobText>
                    </Link>
                  </th>
                  {workers.map(worker => {
                    const cell = item.cells.find(one => one.worker === worker)
                    return <Cell key={worker} failures={cell?.failures ?? 0} successes={cell?.successes ?? 0} />
                  })}
                </tr>
              )
            })}
          </tbody>
        </table>
      </div>
    </>
  )
}

function Cell({ failures, successes }: { failures: number; successes: number }) {
  if (failures + successes === 0) return <td className="h-6 min-w-10 rounded-sm bg-sunken text-center text-muted">·</td>
  const look =
    failures === 0
      ? 'bg-succeeded-soft text-succeeded'
      : successes === 0
        ? 'bg-failed-soft font-semibold text-failed'
        : 'bg-waiting-soft text-waiting'
  return (
    <td className={`h-6 min-w-10 rounded-sm text-center ${look}`} title={`${failures} failed, ${successes} succeeded`}>
      {failures > 0 ? `✗${failures}` : `✓${successes}`}
    </td>
  )
}
