/** Runs things not more often than they are worth. */

export class Pace {
  private readonly last = new Map<string, number>()
  private readonly timers = new Map<string, ReturnType<typeof setTimeout>>()

  /** `pause`: how long to rest after something that cost so many milliseconds. */
  constructor(
    private readonly pause: (cost: number) => number,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** At once if its time has come, else when it comes; asked for several times until then, once. */
  run(name: string, cost: number, action: () => void): void {
    if (this.timers.has(name)) return
    const due = (this.last.get(name) ?? -Infinity) + this.pause(cost)
    const act = () => {
      this.timers.delete(name)
      this.last.set(name, this.now())
      action()
    }
    const wait = due - this.now()
    if (wait <= 0) act()
    else this.timers.set(name, setTimeout(act, wait))
  }
}
