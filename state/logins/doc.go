// Package logins knows the browsers in which somebody has logged in to the console.
//
// A client with an API key asks for a link. The link is good for a minute and once, and only memory has it. The browser
// that opens it gets a secret in exchange, which it keeps in a cookie: that is a login. A login acts for its API key
// until it is ended, the key is, or its time is over. The ledger has the hash of the secret, so that a restart of the
// daemon ends no login.
//
// In: links, logins, their bounds. Out: cookies and the checks of who sends one (package api), and the page (package
// console).
package logins
