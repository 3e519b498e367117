/** What went in and what came out. */
import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { useMemo, useState } from 'react'
import { Button, Empty, Failure, JobText, Loading } from '@/components/ui'
import { count, duration, inline } from '@/lib/format'
import type { StepStatus } from '@/services/model'
import { jobQuery, outputsQuery, planQuery } from '@/services/queries'
import { useJobId } from './use-job'

const SHOWN = 4_000

export default function Data() {
  const id = useJobId()
  const job = useQuery(jobQuery(id))
  const plan = useQuery(planQuery(id))
  const outputs = useInfiniteQuery(outputsQuery(id))
  const rows = useMemo(() => outputs.data?.pages.flatMap(page => page.rows) ?? [], [outputs.data])
  const error = plan.error ?? outputs.error
  if (error) return <Failure error={error} />
  if (!job.data || !plan.data || outputs.isPending) return <Loading what="inputs and outputs" />
  const { runs } = job.data
  const inputs = plan.data.steps.map((step, place) => ({
    name: step.name,
    values: [
      ['action', step.action] as [string, unknown],
      ...step.details.flatMap(([key, value]) => inputOf(key, value)),
      ...(step.fanOut ? [['items', fanOutValues(runs[0]?.steps[place])] as [string, unknown]] : []),
    ],
  }))
  return (
    <div className="grid min-h-0 grow content-start gap-4 overflow-auto p-3 sm:p-4 lg:grid-cols-2">
      <section className="flex min-w-0 flex-col gap-3">
        <h2 className="text-[1.1em] font-semibold">Inputs</h2>
        {inputs.slice(0, 200).map(step => (
          <div key={step.name} className="card p-3">
            <h3 className="mb-1.5 font-medium">
              <JobText>{step.name}</JobText>
            </h3>
            {step.values.map(([key, value]) => (
              <Value key={key} name={key} value={value} />
            ))}
          </div>
        ))}
      </section>
      <section className="flex min-w-0 flex-col gap-3">
        <h2 className="text-[1.1em] font-semibold">
          Outputs{' '}
          {job.data.result && job.data.result.datacenters.length > 0 && (
            <span className="font-normal text-muted">that count: from {job.data.result.datacenters.join(', ')}</span>
          )}
        </h2>
        {rows.length === 0 && (
          <Empty title="No outputs">
            A step gives one by writing JSON to the file <code>$STEADFAST_OUTPUT</code>; later steps read it as{' '}
            <code>steps.NAME.output</code>.
          </Empty>
        )}
        {rows.map(row => (
          <div key={`${row.datacenter}/${row.step}/${row.item}`} className="card p-3">
            <Value name={`${row.datacenter ? `${row.datacenter}/` : ''}${row.step}[${row.item}]`} value={row.output} />
          </div>
        ))}
        {outputs.hasNextPage && <Button onClick={() => void outputs.fetchNextPage()}>More outputs</Button>}
      </section>
    </div>
  )
}

/** The elements of a fan-out, as far as a status has them. */
function fanOutValues(step: StepStatus | undefined): string {
  const values = step?.items.map(item => inline(item.value)) ?? []
  const all = Object.values(step?.counts ?? {}).reduce((sum, amount) => sum + amount, 0)
  return `${values.join(', ')}${all > values.length ? ` and ${count(all - values.length)} more` : ''}`
}

const USUAL_SCHEDULING_TIMEOUT_MS = 86_400_000

/** A detail of a plan as a reader wants it; what is as usual is left out. */
function inputOf(key: string, value: unknown): [string, unknown][] {
  if (key === 'for_each') return []
  if (key === 'max_failed' && (value as { count?: number }).count === 0) return []
  if (key === 'scheduling_timeout_ms' && value === USUAL_SCHEDULING_TIMEOUT_MS) return []
  if (key.endsWith('_ms') && typeof value === 'number') return [[key.replace(/_ms$/, ''), duration(value)]]
  return [[key, value]]
}

/** Short values stand in one line. */
const INLINE = 60

function written(value: unknown): string {
  if (typeof value === 'string') return value
  const short = JSON.stringify(value) ?? ''
  return short.length <= INLINE ? short : JSON.stringify(value, null, 2)
}

function Value({ name, value }: { name: string; value: unknown }) {
  const [most, setMost] = useState(SHOWN)
  const text = written(value)
  return (
    <div className="grid gap-x-3 sm:grid-cols-[120px_1fr]">
      <JobText className="text-muted">{name}</JobText>
      <pre className="min-w-0 whitespace-pre-wrap">
        <JobText>{text.slice(0, most)}</JobText>
        {text.length > most && (
          <Button look="quiet" onClick={() => setMost(most * 4)}>
            {count(text.length - most)} more characters
          </Button>
        )}
      </pre>
    </div>
  )
}
