/** Server-sent events from the pieces of a stream (https://html.spec.whatwg.org/#event-stream-interpretation). */

export interface ServerEvent {
  id: string
  event: string
  data: string
}

export class SseParser {
  private rest = ''
  private id = ''
  private event = ''
  private data: string[] = []
  private skipLineFeed = false

  /** The events that `piece` completes. */
  push(piece: string): ServerEvent[] {
    const events: ServerEvent[] = []
    let text = piece
    // A line may end in CR LF, and the two may come in different pieces.
    if (this.skipLineFeed && text.startsWith('\n')) text = text.slice(1)
    if (piece !== '') this.skipLineFeed = text.endsWith('\r')
    const lines = (this.rest + text).split(/\r\n|\n|\r/)
    this.rest = lines.pop() ?? ''
    for (const line of lines) this.line(line, events)
    return events
  }

  private line(line: string, events: ServerEvent[]): void {
    if (line === '') {
      if (this.data.length > 0) events.push({ id: this.id, event: this.event || 'message', data: this.data.join('\n') })
      this.event = ''
      this.data = []
      return
    }
    if (line.startsWith(':')) return
    const colon = line.indexOf(':')
    const field = colon < 0 ? line : line.slice(0, colon)
    let value = colon < 0 ? '' : line.slice(colon + 1)
    if (value.startsWith(' ')) value = value.slice(1)
    if (field === 'data') this.data.push(value)
    else if (field === 'event') this.event = value
    else if (field === 'id' && !value.includes('\0')) this.id = value
  }
}
