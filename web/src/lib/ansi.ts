/** Lines of a log: the colours of ANSI sequences kept, everything else that could move, hide or turn text made visible or dropped. */

export interface Style {
  /** 0–15 of the palette, or `#rrggbb`. */
  color?: number | string
  background?: number | string
  bold?: boolean
  dim?: boolean
  italic?: boolean
  underline?: boolean
  inverse?: boolean
}

export interface Segment {
  text: string
  style: Style
}

const PLAIN: Style = {}
// CSI, OSC (ended by BEL or ST), other two-character escapes, and a sequence that the end of the text cut off.
const ESCAPE =
  /\x1b(?:\[([0-9;:?<=>]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\|$)|[PX^_][^\x1b]*(?:\x1b\\|$)|\[[0-9;:?<=>]*[ -/]*$|[ -/]*[0-~]|$)/g
// Controls, and the characters that turn the direction of text or are invisible.
const UNSEEN = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g

export class AnsiParser {
  private style: Style = PLAIN

  /** One line without its end; colours go on from the line before. */
  line(text: string): Segment[] {
    const visible = overwritten(text)
    const segments: Segment[] = []
    let from = 0
    for (const match of visible.matchAll(ESCAPE)) {
      this.add(segments, visible.slice(from, match.index))
      from = match.index + match[0].length
      if (match[2] === 'm') this.style = restyled(this.style, match[1] ?? '')
    }
    this.add(segments, visible.slice(from))
    return segments
  }

  private add(segments: Segment[], text: string): void {
    if (text !== '') segments.push({ text: text.replace(UNSEEN, shown), style: this.style })
  }
}

/** A carriage return writes over the line: of a progress bar its last state is left. */
function overwritten(text: string): string {
  if (!text.includes('\r')) return text
  const parts = text.split('\r').filter(part => part !== '')
  return parts.at(-1) ?? ''
}

function shown(character: string): string {
  const code = character.charCodeAt(0)
  if (code < 0x20) return String.fromCharCode(0x2400 + code)
  if (code === 0x7f) return '\u2421'
  return `⟨${code.toString(16).toUpperCase().padStart(4, '0')}⟩`
}

/** Text of a job that is no log: the same characters made visible, no colours. */
export function plainText(text: string): string {
  return text.replace(ESCAPE, '').replace(UNSEEN, shown)
}

function restyled(before: Style, parameters: string): Style {
  const codes = parameters.split(/[;:]/).map(code => Number(code || 0))
  let style = before
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i] ?? 0
    if (code === 38 || code === 48) {
      const [color, used] = extended(codes.slice(i + 1))
      style = code === 38 ? { ...style, color } : { ...style, background: color }
      i += used
    } else style = single(style, code)
  }
  return style
}

function single(style: Style, code: number): Style {
  if (code === 0) return PLAIN
  if (code === 1) return { ...style, bold: true }
  if (code === 2) return { ...style, dim: true }
  if (code === 3) return { ...style, italic: true }
  if (code === 4) return { ...style, underline: true }
  if (code === 7) return { ...style, inverse: true }
  if (code === 22) return { ...style, bold: false, dim: false }
  if (code === 23) return { ...style, italic: false }
  if (code === 24) return { ...style, underline: false }
  if (code === 27) return { ...style, inverse: false }
  if (code >= 30 && code <= 37) return { ...style, color: code - 30 }
  if (code === 39) return { ...style, color: undefined }
  if (code >= 40 && code <= 47) return { ...style, background: code - 40 }
  if (code === 49) return { ...style, background: undefined }
  if (code >= 90 && code <= 97) return { ...style, color: code - 82 }
  if (code >= 100 && code <= 107) return { ...style, background: code - 92 }
  return style
}

/** `5;N` or `2;R;G;B`, and how many codes that took. */
function extended(codes: number[]): [number | string | undefined, number] {
  if (codes[0] === 5) return [indexed(codes[1] ?? 0), 2]
  if (codes[0] === 2) return [hex(codes[1] ?? 0, codes[2] ?? 0, codes[3] ?? 0), 4]
  return [undefined, codes.length]
}

function indexed(index: number): number | string | undefined {
  if (index < 16) return index
  if (index > 255) return undefined
  if (index >= 232) {
    const grey = 8 + (index - 232) * 10
    return hex(grey, grey, grey)
  }
  const cube = index - 16
  const level = (step: number) => (step === 0 ? 0 : 55 + step * 40)
  return hex(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6))
}

function hex(...rgb: number[]): string {
  return `#${rgb.map(value => Math.min(255, Math.max(0, value)).toString(16).padStart(2, '0')).join('')}`
}
