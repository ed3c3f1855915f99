//go:build unix

package main

import (
	"os"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/fence"
)

// childEnv is the environment of a command that runs under claims. What an outer `tenure run` told its own
// command is removed first: it is about other names.
func childEnv(environ []string, claims []fence.Claim, store string) []string {
	var env []string
	for _, entry := range environ {
		if name, _, _ := strings.Cut(entry, "="); !tenureVariable(name) {
			env = append(env, entry)
		}
	}
	env = append(env, "TENURE_COUNT="+strconv.Itoa(len(claims)))
	for i, claim := range claims {
		env = append(env, claimEnv(claim, "_"+strconv.Itoa(i+1))...)
	}
	if len(claims) == 1 {
		env = append(env, claimEnv(claims[0], "")...)
	}
	if store != "" {
		env = append(env, "TENURE_STORE="+store)
	}
	return env
}

func claimEnv(c fence.Claim, suffix string) []string {
	return []string{"TENURE_NAME" + suffix + "=" + c.Name, "TENURE_TOKEN" + suffix + "=" + c.Token.String(), "TENURE_CLAIM" + suffix + "=" + c.String()}
}

// tenureVariable reports whether childEnv decides about an environment variable.
func tenureVariable(name string) bool {
	for _, known := range []string{"TENURE_NAME", "TENURE_TOKEN", "TENURE_CLAIM"} {
		if rest, ok := strings.CutPrefix(name, known); ok && (rest == "" || rest[0] == '_') {
			return true
		}
	}
	switch name {
	case "TENURE_STORE", "TENURE_COUNT", "TENURE_OPERATION", "TENURE_ATTEMPT":
		return true
	}
	return false
}

// ownPath is the file to start this program again from. If another was put in its place since, as an upgrade does, it
// is this process's own image.
func ownPath() string {
	const image = "/proc/self/exe" // Linux
	path, err := os.Executable()
	if err != nil {
		return image
	}
	there, err := os.Stat(path)
	if running, runErr := os.Stat(image); runErr == nil && (err != nil || !os.SameFile(there, running)) {
		return image
	}
	return path
}

// asFile is a stream as a command can inherit it; nil, which is /dev/null, where it cannot.
func asFile(stream any) *os.File {
	file, _ := stream.(*os.File)
	return file
}
