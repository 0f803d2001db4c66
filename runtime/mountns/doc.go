// Package mountns works in mount namespaces other than the process's own. It moves the daemon to a private one, runs
// a function on a thread in another one, and handles detached mounts.
//
// It knows nothing of sandboxes. The daemon's main calls Private; the packages of the runtime call the rest.
package mountns
