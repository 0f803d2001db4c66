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

// A Stamp describes where and when a run took place.
type Stamp struct {
	Date     time.Time         `json:"date"`
	Version  string            `json:"version"` // commit of berth
	Kernel   string            `json:"kernel"`
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	MemoryGB float64           `json:"memory_gib"`
	Cgroups  string            `json:"cgroups"` // v1, v2 or hybrid
	Disk     string            `json:"disk"`    // file system of the daemon's data
	Load     string            `json:"load"`    // load average of the last minute at the start
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

// processor returns the model of the first CPU.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // if this fails, the stamp has no model
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// cgroups returns which hierarchy has the controllers.
func cgroups() string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return "v2"
	}
	if _, err := os.Stat(hybrid); err == nil {
		return "hybrid (v1 with controllers)"
	}
	return "v1"
}

// fileSystems maps magic numbers of the usual file systems to names.
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

// loadAverage returns the load average of the last minute.
func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// memory returns the sum of fields of /proc/meminfo, in KiB.
func memory(fields ...string) float64 { return sumOf("/proc/meminfo", fields...) }

// sumOf sums the numbers on lines "key: N" of a kernel file. It returns 0 if the file cannot be read.
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
