// The view library: htm's templates make Preact's elements. All text of the page goes through it and is escaped by it;
// no module sets HTML.
import { h, render } from 'preact'
import htm from 'htm'

export { render }
export { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks'
export const html = htm.bind(h)

// keys joins the names of classes that hold.
export const classes = (...names) => names.filter(Boolean).join(' ')
