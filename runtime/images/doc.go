// Package images is the session.Images of the containerd runtime: it imports and pulls images, checks and unpacks them,
// gives them names, and removes those that nothing needs. It refuses what an attacker could make of an archive, an
// index or a manifest before containerd reads it.
//
// It works through a containerd client that its caller, package containerd, has connected. Starting a sandbox over an
// image is that package's work; Pin gives it the image's layers.
package images
