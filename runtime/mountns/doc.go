// Package mountns works in mount namespaces other than the process's own. It moves the daemon into a private one, runs
// a function on a thread in another one, and handles mounts that have no place yet.
//
// It knows nothing of sandboxes. The daemon's main calls Private; the packages of the runtime call the rest.
package mountns
