/** Logs of attempts: which there are, and what one says. */
import { useInfiniteQuery } from '@tanstack/react-query'
import { useMemo } from 'react'
import { StateIcon } from '@/components/state'
import { Button, Empty, Failure, JobText, Loading } from '@/components/ui'
import { bytes } from '@/lib/format'
import type { Log } from '@/services/model'
import { logsQuery } from '@/services/queries'
import { useJobId, useJobSearch } from '../use-job'
import { LogView } from './log-view'

export default function Logs() {
  const id = useJobId()
  const [search, change] = useJobSearch()
  const pages = useInfiniteQuery(logsQuery(id, search.step))
  const logs = useMemo(() => pages.data?.pages.flatMap(page => page.rows) ?? [], [pages.data])
  if (pages.error && logs.length === 0) return <Failure error={pages.error} retry={() => void pages.refetch()} />
  if (pages.isPending) return <Loading what="logs" />
  const chosen = logs.find(log => log.name === search.log) ?? logs.at(-1)
  return (
    <div className="flex min-h-[360px] grow flex-col lg:flex-row">
      <nav
        aria-label="Logs"
        className="flex max-h-40 shrink-0 flex-col overflow-auto border-b border-line bg-surface lg:max-h-none lg:w-64 lg:border-r lg:border-b-0"
      >
        {search.step && (
          <Button look="quiet" icon="close" className="m-1 justify-start" onClick={() => change({ step: undefined, log: undefined })}>
            only step {search.step}
          </Button>
        )}
        <ul>
          {logs.map(log => (
            <li key={`${log.step}/${log.name}`}>
              <button
                type="button"
                aria-current={log === chosen}
                onClick={() => change({ log: log.name })}
                className="flex w-full items-center gap-2 border-b border-line px-3 py-1 text-left hover:bg-hover aria-[current=true]:bg-accent-soft"
              >
                {log.arriving && <StateIcon state="running" size={11} label="still arriving" />}
                <JobText className="min-w-0 grow truncate">{logTitle(log)}</JobText>
                <span className="text-muted">{bytes(log.size)}</span>
              </button>
            </li>
          ))}
        </ul>
        {pages.hasNextPage && (
          <Button look="quiet" onClick={() => void pages.fetchNextPage()}>
            More logs
          </Button>
        )}
      </nav>
      {chosen ? (
        <LogView key={`${chosen.step}/${chosen.name}`} job={id} log={chosen} />
      ) : (
        <Empty title="Nothing was printed" icon="jobs">
          What an attempt prints to its standard output and error appears here as it comes.
        </Empty>
      )}
    </div>
  )
}

function logTitle(log: Log): string {
  const place = log.datacenter ? `${log.datacenter}/` : ''
  const role = log.role === 'fallback' ? '!' : log.role === 'compensation' ? '~' : ''
  return `${place}${log.step}${role}[${log.item}] attempt ${log.attempt}`
}
