package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/tenure-go/tenure/bench/report"
	"github.com/tenure-go/tenure/bench/stats"
	"github.com/tenure-go/tenure/bench/twin"
)

// describeMachine says what folder's disk and this process run on, without a host's name.
func describeMachine(ctx context.Context, folder string) (report.Machine, error) {
	m := report.Machine{
		Processors: runtime.GOMAXPROCS(0),
		Processor:  firstMatch("/proc/cpuinfo", `(?m)^model name\s*: (.*)$`),
		System:     runtime.GOOS + "/" + runtime.GOARCH,
		FileSystem: fileSystem(folder),
		Go:         runtime.Version(),
		Driver:     driverVersion(),
	}
	if release := firstMatch("/proc/sys/kernel/osrelease", `^([0-9]+\.[0-9]+)`); release != "" {
		m.System = "Linux " + release + " " + runtime.GOARCH
	}
	var err error
	if m.SQLite, err = sqliteVersion(ctx, folder); err != nil {
		return m, err
	}
	m.FsyncMicros, err = probeFsync(folder)
	return m, err
}

func sqliteVersion(ctx context.Context, folder string) (version string, err error) {
	t, err := twin.Open(ctx, filepath.Join(folder, "version.db"))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	return t.SQLiteVersion(ctx)
}

// firstMatch is the first group that pattern finds in the file, or nothing.
func firstMatch(path, pattern string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	found := regexp.MustCompile(pattern).FindSubmatch(text)
	if found == nil {
		return ""
	}
	return strings.TrimSpace(string(found[1]))
}

func driverVersion() string {
	const driver = "modernc.org/sqlite"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == driver {
				return driver + " " + dep.Version
			}
		}
	}
	return driver
}

// probeFsync is the median of writing 4 KiB and syncing it, in microseconds: what a commit cannot be faster than.
func probeFsync(folder string) (_ float64, err error) {
	file, err := os.Create(filepath.Join(folder, "fsync"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	const times = 100
	block := make([]byte, 4096)
	took := make([]float64, 0, times)
	for i := range times {
		start := time.Now()
		if _, err := file.WriteAt(block, int64(i)*int64(len(block))); err != nil {
			return 0, err
		}
		if err := file.Sync(); err != nil {
			return 0, err
		}
		took = append(took, micros(time.Since(start)))
	}
	return stats.Median(took), nil
}

// othersShare starts to watch the processors. What it returns is the share of their time since then that went to other programs
// than this one and its children, or nil where that cannot be read.
func othersShare() func() *float64 {
	busy, total, ok := processorTimes()
	own := processTime() + childrenTime()
	return func() *float64 {
		nowBusy, nowTotal, nowOK := processorTimes()
		if !ok || !nowOK || nowTotal <= total {
			return nil
		}
		others := (nowBusy - busy) - (processTime() + childrenTime() - own)
		share := min(max(float64(others)/float64(nowTotal-total), 0), 1)
		return &share
	}
}
