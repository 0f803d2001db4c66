package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// A setting is a file of a cgroup and its value. The file is in the directory of its controller (v1) or of the
// sandbox (v2).
type setting struct{ controller, v1, v1Value, v2, v2Value string }

// settings returns the settings of res, in the order in which limits can grow.
func settings(res *specs.LinuxResources) []setting {
	num := func(n int64) string { return strconv.FormatInt(n, 10) }
	quota, period := num(*res.CPU.Quota), strconv.FormatUint(*res.CPU.Period, 10)
	memory, pids := num(*res.Memory.Limit), num(*res.Pids.Limit)
	return []setting{
		{"cpu", "cpu.cfs_quota_us", quota, "cpu.max", quota + " " + period},
		// v2 counts swap separately, and its limit stays 0
		{"memory", "memory.memsw.limit_in_bytes", num(*res.Memory.Swap), "", ""},
		{"memory", "memory.limit_in_bytes", memory, "memory.max", memory},
		{"pids", "pids.max", pids, "pids.max", pids},
	}
}

// Change writes the settings that differ between had and want. On v1 the memory limit must never exceed the limit of
// memory plus swap, not even in between, so limits that shrink are written in reverse order.
func Change(name string, had, want *specs.LinuxResources) error {
	now, then := settings(want), settings(had)
	if *want.Memory.Limit < *had.Memory.Limit {
		now[1], now[2], then[1], then[2] = now[2], now[1], then[2], then[1]
	}
	for i, s := range now {
		if s == then[i] {
			continue
		}
		if err := s.write(name); err != nil {
			return err
		}
	}
	return nil
}

func (s setting) write(name string) error {
	file, value := s.v1, s.v1Value
	dir, v2 := Dir(name, s.controller)
	if v2 {
		if file, value = s.v2, s.v2Value; file == "" {
			return nil
		}
	}
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) && s.v2 == "" { // the kernel does not count swap
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(value)
	return err
}
