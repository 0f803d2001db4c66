// Package flags parses the values of flags that several commands have: the network, the confinement, labels,
// environment variables and secrets of a container. Packages cli, cli/code and cli/tools use it. It runs no commands
// and sends no requests.
package flags
