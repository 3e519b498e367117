import { useQuery } from '@tanstack/react-query'
import { lazy, Suspense, useState } from 'react'
import { JOB_TABS, type JobTab } from '@/app/router'
import { useShortcuts } from '@/app/shortcuts'
import { Empty, Failure, Loading } from '@/components/ui'
import { isNotFound } from '@/services/job'
import { useLive } from '@/services/live'
import { jobQuery } from '@/services/queries'
import { ActionDialog, type Intent } from '../jobs/actions'
import { JobHeader } from './header'
import { useJobId, useJobSearch } from './use-job'

const TABS: Record<JobTab, { label: string; View: ReturnType<typeof lazy> }> = {
  graph: { label: 'Graph', View: lazy(() => import('./graph/graph')) },
  timeline: { label: 'Timeline', View: lazy(() => import('./timeline/timeline')) },
  why: { label: 'Why', View: lazy(() => import('./why/why')) },
  events: { label: 'Events', View: lazy(() => import('./events')) },
  logs: { label: 'Logs', View: lazy(() => import('./logs/logs')) },
  data: { label: 'Inputs & outputs', View: lazy(() => import('./data')) },
  file: { label: 'File', View: lazy(() => import('./file')) },
}

export default function JobPage() {
  useLive()
  const id = useJobId()
  const [search, change] = useJobSearch()
  const [intent, setIntent] = useState<Intent | null>(null)
  const { data: job, error, refetch } = useQuery(jobQuery(id))
  const tab = search.tab ?? 'graph'
  useShortcuts(
    'Job',
    JOB_TABS.map((name, i) => ({ keys: String(i + 1), about: TABS[name].label, run: () => change({ tab: name }) })),
  )
  if (error && !job) {
    if (isNotFound(error)) return <Empty title="There is no such job">It may have been purged, or the address has lost a character.</Empty>
    return <Failure error={error} retry={() => void refetch()} />
  }
  if (!job) return <Loading what="the job" />
  const { View } = TABS[tab]
  return (
    <div className="flex min-h-0 grow flex-col">
      <JobHeader job={job} onAct={action => setIntent({ action, target: { ids: [job.id] } })} />
      <div
        role="tablist"
        aria-label="What to look at"
        className="flex shrink-0 gap-0.5 overflow-x-auto border-b border-line bg-surface px-2 sm:px-3"
      >
        {JOB_TABS.map(name => (
          <button
            key={name}
            role="tab"
            type="button"
            id={`tab-${name}`}
            aria-selected={name === tab}
            aria-controls="tab-panel"
            tabIndex={name === tab ? 0 : -1}
            onClick={() => change({ tab: name })}
            onKeyDown={event => arrow(event, name, change)}
            className="-mb-px h-9 shrink-0 border-b-2 border-transparent px-2.5 font-medium text-muted hover:text-text aria-selected:border-accent aria-selected:text-text"
          >
            {TABS[name].label}
          </button>
        ))}
      </div>
      <div role="tabpanel" id="tab-panel" aria-labelledby={`tab-${tab}`} className="flex min-h-0 grow flex-col">
        <Suspense fallback={<Loading what={TABS[tab].label.toLowerCase()} />}>
          <View />
        </Suspense>
      </div>
      {intent && <ActionDialog intent={intent} onClose={() => setIntent(null)} />}
    </div>
  )
}

function arrow(event: React.KeyboardEvent, name: JobTab, change: (to: { tab: JobTab }) => void): void {
  const by = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0
  if (by === 0) return
  const next = JOB_TABS[(JOB_TABS.indexOf(name) + by + JOB_TABS.length) % JOB_TABS.length] ?? name
  change({ tab: next })
  document.getElementById(`tab-${next}`)?.focus()
}
