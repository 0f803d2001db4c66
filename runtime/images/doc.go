// Package images is the session.Images of the containerd runtime: it imports and pulls images, checks and unpacks
// them, names them, and removes unused ones. It checks archives, indexes and manifests for attacks before containerd
// reads them.
//
// It works through a containerd client that its caller, package containerd, has connected. Package containerd starts
// sandboxes over an image; Pin gives it the image's layers.
package images
