// Package console serves the web console: a page that shows containers, lets a person work in them, and asks for
// decisions.
//
// The page is static. Its modules are in web/, one subject each, and talk to the native API alone, so the console can
// do nothing that an API key cannot. Libraries of others are in libs/: `make console-libs` takes them from npm, by the
// versions and hashes of package-lock.json. A program that was built without them serves a page that says so.
//
// A browser logs in with a link of `berth console` (package state/logins) and then has a cookie (api/cookie.go).
package console
