import { useMutation } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useMemo, useState } from 'react'
import { Dialog } from '@/components/dialog'
import { Button, JobText } from '@/components/ui'
import { submitJob } from '@/services/jobs'
import { Problem } from '@/services/problem'

const EXAMPLE = `name: hello
steps:
  greet:
    run: '[ $STEADFAST_ATTEMPT -gt 1 ] && echo hello'
    retry: { initial_delay: 5s }
`

export function SubmitDialog({ onClose }: { onClose: () => void }) {
  const [file, setFile] = useState(EXAMPLE)
  const navigate = useNavigate()
  const key = useMemo(() => crypto.randomUUID(), [file])
  const submit = useMutation({
    mutationFn: () => submitJob(file, key),
    onSuccess: ({ id }) => void navigate({ to: '/jobs/$id', params: { id } }),
  })
  return (
    <Dialog
      title="Submit a job"
      open
      wide
      onClose={onClose}
      footer={
        <Button look="primary" disabled={submit.isPending} onClick={() => submit.mutate()}>
          Submit
        </Button>
      }
    >
      <label className="flex flex-col gap-1">
        <span className="text-muted">A job file, YAML or JSON.</span>
        <textarea
          value={file}
          spellCheck={false}
          onChange={event => setFile(event.target.value)}
          rows={14}
          className="rounded-md border border-line-strong bg-sunken p-2 font-mono text-[0.95em]"
        />
      </label>
      {submit.error && <Mistakes error={submit.error} />}
    </Dialog>
  )
}

function Mistakes({ error }: { error: Error }) {
  const mistakes = error instanceof Problem ? error.mistakes : []
  return (
    <div role="alert" className="mt-2 rounded-md bg-failed-soft p-2 text-failed">
      {mistakes.length === 0 && <JobText>{error.message}</JobText>}
      {mistakes.map((mistake, i) => (
        <p key={i}>
          <code>{mistake.path || 'job'}</code> <JobText>{mistake.message}</JobText>{' '}
          {mistake.help && <JobText>{`(${mistake.help})`}</JobText>}
        </p>
      ))}
    </div>
  )
}
