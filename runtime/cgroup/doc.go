// Package cgroup makes, limits, freezes, kills and removes the cgroups of sandboxes, on hosts with cgroups v1, v2 or
// both. All of them are below one parent, Parent, whose CPU weight is set here too.
//
// Reading counters is the work of package meter. Packages launch and containerd call this package.
package cgroup
