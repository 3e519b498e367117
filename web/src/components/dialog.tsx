import { Dialog as Base } from '@base-ui/react/dialog'
import type { ReactNode } from 'react'
import { IconButton } from './ui'

interface Props {
  title: string
  open: boolean
  onClose: () => void
  children: ReactNode
  footer?: ReactNode
  wide?: boolean
}

export function Dialog({ title, open, onClose, children, footer, wide = false }: Props) {
  return (
    <Base.Root open={open} onOpenChange={next => !next && onClose()}>
      <Base.Portal>
        <Base.Backdrop className="fixed inset-0 z-40 bg-black/40" />
        <Base.Popup
          className={`fixed inset-x-2 bottom-2 z-50 mx-auto flex max-h-[88dvh] flex-col rounded-xl border border-line bg-surface shadow-(--shadow) sm:top-[10dvh] sm:bottom-auto ${wide ? 'max-w-3xl' : 'max-w-xl'}`}
        >
          <div className="flex items-center gap-2 border-b border-line py-2 pr-2 pl-4">
            <Base.Title className="grow text-[1.1em] font-semibold">{title}</Base.Title>
            <IconButton icon="close" label="Close" onClick={onClose} />
          </div>
          <div className="overflow-auto px-4 py-3">{children}</div>
          {footer && <div className="flex flex-wrap items-center justify-end gap-2 border-t border-line px-4 py-3">{footer}</div>}
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  )
}
