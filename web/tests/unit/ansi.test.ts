import { expect, test } from 'vitest'
import { AnsiParser, plainText } from '@/lib/ansi'

const texts = (line: string) => new AnsiParser().line(line).map(segment => segment.text)

test('colours are kept, and go on in the next line', () => {
  const parser = new AnsiParser()
  expect(parser.line('\x1b[31mred')).toEqual([{ text: 'red', style: { color: 1 } }])
  expect(parser.line('still\x1b[0m not')).toEqual([
    { text: 'still', style: { color: 1 } },
    { text: ' not', style: {} },
  ])
})

test('256 colours and true colours', () => {
  expect(new AnsiParser().line('\x1b[38;5;196;1mx')[0]?.style).toEqual({ color: '#ff0000', bold: true })
  expect(new AnsiParser().line('\x1b[48;2;1;2;300mx')[0]?.style).toEqual({ background: '#0102ff' })
})

test('sequences that move, clear or name things leave nothing', () => {
  expect(texts('a\x1b[2J\x1b[1;1H\x1b[?25lb')).toEqual(['a', 'b'])
  expect(texts('\x1b]0;title\x07\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\')).toEqual(['link'])
  expect(texts('cut off \x1b[3')).toEqual(['cut off '])
})

test('controls and characters that turn text are made visible', () => {
  expect(plainText('a\0b\x08c')).toBe('a␀b␈c')
  expect(plainText('user\u202egnp.exe')).toBe('user⟨202E⟩gnp.exe')
})

test('markup is text', () => {
  expect(texts('<script>alert(1)</script>')).toEqual(['<script>alert(1)</script>'])
})

test('of a progress bar the last state is left', () => {
  expect(texts('10%\r50%\r100%\r')).toEqual(['100%'])
})
