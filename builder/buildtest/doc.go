// Package buildtest tests builds of images by a real daemon and a real builder, from base images in a registry on
// loopback. It is in the builder's module because of what a registry needs.
package buildtest
