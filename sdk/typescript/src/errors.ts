/** What the daemon says about a request that failed. */
export interface Failure {
  /** The kind of the error, such as `not_found`. docs/api.md lists all. */
  code: string
  /** HTTP status; 0 where there was no answer. */
  status: number
  message: string
  /** What the error is about: an ID, a field, or a path in the container. */
  item?: string | undefined
  /** What to do about it, where the daemon says so. */
  hint?: string | undefined
  /** ID of the request, under which the daemon's log has more. */
  requestId?: string | undefined
  /** Seconds after which another try makes sense. */
  retryAfter?: number | undefined
}

/** Every error of the daemon, and every broken connection. Its subclasses tell the kinds apart. */
export class BerthError extends Error {
  override name = 'BerthError'
  /** The kind of the error, such as `not_found`. */
  readonly code: string
  /** HTTP status; 0 where there was no answer. */
  readonly status: number
  /** What the error is about: an ID, a field, or a path in the container; `''` if unknown. */
  readonly item: string
  /** What to do about it: the message's own advice; `''` if it has none. */
  readonly hint: string
  /** ID of the request, under which the daemon's log has more; `''` if there was no answer. */
  readonly requestId: string
  /** Seconds after which another try makes sense; `undefined` if the daemon gave none. */
  readonly retryAfter: number | undefined

  constructor (failure: Failure, options?: ErrorOptions) {
    super(failure.message, options)
    this.code = failure.code
    this.status = failure.status
    this.item = failure.item ?? ''
    this.hint = failure.hint ?? advice(failure.message)
    this.requestId = failure.requestId ?? ''
    this.retryAfter = failure.retryAfter
  }
}

/** 400: the request is wrong and will stay wrong. `item` names the field. */
export class InvalidArgumentError extends BerthError { override name = 'InvalidArgumentError' }
/** 401: no API key, or one that the daemon does not know. */
export class UnauthenticatedError extends BerthError { override name = 'UnauthenticatedError' }
/** 403: this key, this user or this daemon may not do that. */
export class PermissionDeniedError extends BerthError { override name = 'PermissionDeniedError' }
/** 404: there is no such item, or it belongs to another owner. */
export class NotFoundError extends BerthError { override name = 'NotFoundError' }
/** 405: the path does not take this method. */
export class MethodNotAllowedError extends BerthError { override name = 'MethodNotAllowedError' }
/** 409: the item is in a state that forbids this. It may pass. */
export class ConflictError extends BerthError { override name = 'ConflictError' }
/** 409: the name is taken. */
export class AlreadyExistsError extends BerthError { override name = 'AlreadyExistsError' }
/** 410: the item was there, and its time is over. */
export class ExpiredError extends BerthError { override name = 'ExpiredError' }
/** 413: more than a limit of size allows. */
export class TooLargeError extends BerthError { override name = 'TooLargeError' }
/** 429: over a limit of rate or number. `retryAfter` says when to try again. */
export class TooManyRequestsError extends BerthError { override name = 'TooManyRequestsError' }
/** 499: the request was ended from outside. */
export class CanceledError extends BerthError { override name = 'CanceledError' }
/** 500: a fault of the daemon. Its log has the cause under `requestId`. */
export class InternalError extends BerthError { override name = 'InternalError' }
/** 501: this daemon, host or image cannot do that. */
export class UnsupportedError extends BerthError { override name = 'UnsupportedError' }
/** 503: the daemon, or a part that it depends on, does not answer. */
export class UnavailableError extends BerthError { override name = 'UnavailableError' }
/** No answer: there is no daemon at the URL, or the connection broke and retries did not help. */
export class ConnectionFailedError extends UnavailableError { override name = 'ConnectionFailedError' }
/** 504: it took longer than its limit. */
export class DeadlineExceededError extends BerthError { override name = 'DeadlineExceededError' }
/** 507: a disk or a quota of storage is full. */
export class QuotaExceededError extends BerthError { override name = 'QuotaExceededError' }

const classes: Record<string, [status: number, type: typeof BerthError]> = {
  invalid_argument: [400, InvalidArgumentError],
  unauthenticated: [401, UnauthenticatedError],
  permission_denied: [403, PermissionDeniedError],
  not_found: [404, NotFoundError],
  method_not_allowed: [405, MethodNotAllowedError],
  conflict: [409, ConflictError],
  already_exists: [409, AlreadyExistsError],
  expired: [410, ExpiredError],
  too_large: [413, TooLargeError],
  too_many_requests: [429, TooManyRequestsError],
  canceled: [499, CanceledError],
  internal: [500, InternalError],
  unsupported: [501, UnsupportedError],
  unavailable: [503, UnavailableError],
  deadline_exceeded: [504, DeadlineExceededError],
  quota_exceeded: [507, QuotaExceededError]
}

/** errorOf returns the error for a failure, in the class of its code. */
export function errorOf (failure: Failure): BerthError {
  return new (classes[failure.code]?.[1] ?? BerthError)(failure)
}

// statuses are codes for answers of proxies, and for those of /v1/files and /v1/skills, which have other codes.
const statuses: Record<number, string> = { 415: 'invalid_argument', 416: 'invalid_argument', 426: 'invalid_argument',
  502: 'unavailable', 529: 'unavailable' }
for (const [code, [status]] of Object.entries(classes)) statuses[status] ??= code

/** failureOf reads the body of an answer that is not a success. */
export function failureOf (status: number, headers: Headers, body: string): BerthError {
  let said: { error?: Record<string, unknown>, request_id?: unknown } = {}
  try {
    said = JSON.parse(body) ?? {}
  } catch { // a proxy's page, which the message below replaces
  }
  const { code, message, item, hint, retry_after_seconds: later } = said.error ?? {}
  const after = Number(later ?? headers.get('retry-after') ?? NaN)
  return errorOf({
    code: typeof code === 'string' ? code : statuses[status] ?? 'internal',
    status,
    message: typeof message === 'string' ? message : `the server answered ${status}; is it a berth daemon?`,
    item: text(item),
    hint: text(hint),
    requestId: text(said.request_id) ?? headers.get('request-id') ?? undefined,
    retryAfter: Number.isFinite(after) ? after : undefined
  })
}

const text = (value: unknown): string | undefined => typeof value === 'string' ? value : undefined

// advice returns the part of a message behind its semicolon, where the daemon writes what to do.
function advice (message: string): string {
  const at = message.lastIndexOf('; ')
  return at < 0 ? '' : message.slice(at + 2)
}
