/** The lines of a log that are held in memory. A log has no bound, so this has: lines, and characters of one line. */

/** Characters of a line that are kept for showing; what is beyond is counted. */
export const LONGEST_LINE = 20_000
const MOST_LINES = 50_000

export interface LogLine {
  number: number
  text: string
  /** Characters of it that are not kept. */
  cut: number
}

export class LogBuffer {
  lines: LogLine[] = []
  /** Lines that were dropped at the beginning. */
  dropped = 0
  private open: LogLine | null = null
  private next = 1

  push(piece: string): void {
    if (piece === '') return
    let from = 0
    for (;;) {
      const end = piece.indexOf('\n', from)
      this.append(end < 0 ? piece.slice(from) : piece.slice(from, end))
      if (end < 0) break
      this.open = null
      from = end + 1
      // A line exists once it has something after its start, or an end.
      if (from >= piece.length) break
    }
    const over = this.lines.length - MOST_LINES
    // In steps, because moving fifty thousand lines for each new one would be slow.
    if (over > MOST_LINES / 10) {
      this.lines = this.lines.slice(over)
      this.dropped += over
    }
  }

  private append(text: string): void {
    if (this.open === null) {
      this.open = { number: this.next++, text: '', cut: 0 }
      this.lines.push(this.open)
    }
    const room = LONGEST_LINE - this.open.text.length
    this.open.text += text.slice(0, Math.max(0, room))
    this.open.cut += Math.max(0, text.length - Math.max(0, room))
  }
}
