// Package flags parses the values of flags that several commands have: the network, labels, environment variables and
// secrets of a container. Packages cli and cli/code use it. It runs no commands and sends no requests.
package flags
