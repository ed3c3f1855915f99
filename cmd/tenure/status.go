package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tenure-go/tenure/fence"
)

// status is what --json-status writes.
type status struct {
	Outcome         string            `json:"outcome"`
	ExitCode        *int              `json:"exit_code"`
	Text            string            `json:"text"`
	Store           string            `json:"store"`
	Owner           string            `json:"owner"`
	Names           []string          `json:"names"`
	Tokens          []fence.Token     `json:"tokens"`
	Acquisition     fence.ID          `json:"acquisition"`
	WaitedMS        int64             `json:"waited_ms"`
	HeldMS          int64             `json:"held_ms"`
	CommandPID      int               `json:"command_pid"`
	CommandExitCode *int              `json:"command_exit_code"`
	Killed          bool              `json:"killed"`
	Released        bool              `json:"released"`
	Lost            *lostStatus       `json:"lost"`
	Occurrence      *occurrenceStatus `json:"occurrence"`
}

// lostStatus says how a lease was lost.
type lostStatus struct {
	How    string `json:"how"`
	Reason string `json:"reason"`
}

// write replaces the file as a whole: a reader sees the old status or the new one. No file: nothing is done.
func (s status) write(file string) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the status: %w", err)
	}
	temp, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	_, err = temp.Write(append(text, '\n'))
	if err == nil {
		err = temp.Chmod(0o644)
	}
	if err == nil {
		err = temp.Sync()
	}
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}
