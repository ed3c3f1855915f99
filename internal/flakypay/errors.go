package flakypay

import (
	"errors"
	"fmt"
)

// The kinds of error. None satisfies another.
var (
	// ErrConfig: a setting makes no sense, alone or beside another. Nothing was started. See [ConfigError].
	ErrConfig = errors.New("invalid configuration")
	// ErrFile: the ledger's file could not be read or written. The provider has stopped: what it cannot record it does not do.
	ErrFile = errors.New("ledger file")
	// ErrServing: the provider serves already, or has ended.
	ErrServing = errors.New("the provider serves already or has ended")
	// ErrNoAnswer: the ledger has no such answer, or it is older than the details it keeps.
	ErrNoAnswer = errors.New("no such answer")
	// errWebhook: a webhook was answered, and not with 2xx.
	errWebhook = errors.New("the webhook was refused")
)

// ConfigError matches [ErrConfig].
type ConfigError struct {
	Field, Problem string
}

// Error names the field and what is wrong with it.
func (e *ConfigError) Error() string { return fmt.Sprintf("flakypay: %s: %s", e.Field, e.Problem) }

// Is makes the error match [ErrConfig].
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }
