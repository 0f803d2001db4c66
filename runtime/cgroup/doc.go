// Package cgroup makes, limits, freezes, kills and removes the cgroups of sandboxes, on hosts with cgroups v1, v2 or
// both. They have one parent cgroup, Parent. The package sets its CPU weight too.
//
// Package meter reads the counters. Packages launch and containerd call this package.
package cgroup
