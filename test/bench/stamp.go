package bench

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Stamp says where and when a run was.
type Stamp struct {
	Date     time.Time         `json:"date"`
	Version  string            `json:"version"` // of berth: the commit
	Kernel   string            `json:"kernel"`
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	MemoryGB float64           `json:"memory_gib"`
	Cgroups  string            `json:"cgroups"` // v1, v2 or hybrid
	Disk     string            `json:"disk"`    // file system below the daemon's data
	Load     string            `json:"load"`    // average of the last minute when it began
	Go       string            `json:"go"`
	Versions map[string]string `json:"versions"` // of the comparators
}

func stampOf(dir, version string) Stamp {
	s := Stamp{
		Date: time.Now().UTC().Truncate(time.Second), Version: version, CPU: processor(), Cores: runtime.NumCPU(),
		Cgroups: cgroups(),
		Disk:    fileSystem(dir), Load: loadAverage(), Go: runtime.Version(), MemoryGB: memory("MemTotal") / (1 << 20),
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		s.Kernel = strings.TrimSpace(string(text))
	}
	return s
}

// processor is the model of the first CPU.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // without it the stamp says nothing
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// cgroups says which hierarchy has the controllers.
func cgroups() string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return "v2"
	}
	if _, err := os.Stat(hybrid); err == nil {
		return "hybrid (v1 with controllers)"
	}
	return "v1"
}

// fileSystems are the ones that data directories are likely to be on, by their magic numbers.
var fileSystems = map[int64]string{0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x01021994: "tmpfs",
	0x794c7630: "overlay"}

func fileSystem(dir string) string {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return ""
	}
	if name := fileSystems[int64(st.Type)]; name != "" {
		return name
	}
	return fmt.Sprintf("%#x", st.Type)
}

// loadAverage is that of the last minute.
func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// memory is what fields of /proc/meminfo add up to, in KiB.
func memory(fields ...string) float64 { return sumOf("/proc/meminfo", fields...) }

// sumOf adds up the numbers on the lines "key: N" of one of the kernel's files; 0 is seen by whoever divides by it.
func sumOf(file string, keys ...string) (sum float64) {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if key, rest, ok := strings.Cut(line, ":"); ok && slices.Contains(keys, strings.TrimSpace(key)) {
			n, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			sum += n
		}
	}
	return sum
}
