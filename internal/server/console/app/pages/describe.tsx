// What an event says, in words.
import type { Notification } from '../lib/types'

const reasons: Record<string, string> = { stopped: 'by a request', idle: 'idle for too long', lifetime: 'longest lifetime', died: 'ended by itself', shutdown: 'daemon shut down' }

function end(n: Notification): string {
  if (n.code) return `failed: ${n.code}`
  if (n.outcome === 'exited') return n.exit_code === undefined ? 'done' : `exit code ${n.exit_code}`
  if (n.outcome === 'signaled') return `signal ${n.signal ?? '?'}`
  return (n.outcome ?? 'ended').replace('_', ' ')
}

// describe returns a sentence without its subject's id.
export function describe(n: Notification): string {
  const by = n.client ? ` by ${n.client}` : ''
  switch (n.type) {
    case 'sandbox.created':
      return `Created${by}`
    case 'sandbox.forked':
      return `Forked from ${n.from ?? 'another'}${by}`
    case 'sandbox.paused':
      return 'Paused'
    case 'sandbox.resumed':
      return `Resumed${by}`
    case 'sandbox.reset':
      return 'Reset'
    case 'sandbox.ended':
      return `Ended, ${reasons[n.reason ?? ''] ?? n.reason ?? ''}`
    case 'program.started':
      return `Program ${n.program ?? ''} started${by}`
    case 'program.ended':
      return `Program ${n.program ?? ''} ended, ${end(n)}`
    case 'execution.started':
      return `Execution started${by}`
    case 'execution.ended':
      return `Execution ended, ${end(n)}`
    case 'cell.started':
      return `Cell of ${n.context ?? 'a context'} started${by}`
    case 'cell.ended':
      return `Cell of ${n.context ?? 'a context'} ended, ${n.failed ? 'with an error' : end(n)}`
    case 'refused':
      return `Refused: ${n.action ?? ''} (${n.code ?? ''})${by}`
    case 'gap':
      return n.missed ? `${n.missed} events are no longer kept` : 'Earlier events are no longer kept'
  }
  return n.type
}

// severity returns the colour of an event.
export function severity(n: Notification): 'good' | 'bad' | 'warn' | 'still' {
  if (n.type === 'refused' || n.code || n.reason === 'died' || n.failed) return 'bad'
  if (n.type === 'gap' || (n.outcome && n.outcome !== 'exited') || (n.exit_code ?? 0) !== 0) return 'warn'
  if (n.type === 'sandbox.created' || n.type === 'sandbox.resumed' || n.type === 'sandbox.forked') return 'good'
  return 'still'
}
