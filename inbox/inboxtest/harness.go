package inboxtest

import (
	"context"
	"slices"
	"time"

	"github.com/tenure-go/tenure/inbox"
)

// Case is one guarantee. Run returns an error that says which step found it broken, or nil.
type Case[H any] struct {
	Name string
	Run  func(ctx context.Context, h H) error
}

// Harness is one fresh inbox with [Window], and a table of effects beside it, used by one case.
type Harness interface {
	// Store returns the store under test.
	Store() inbox.Store
	// Begin begins a transaction of the consumer's own, on a connection of its own, at a level of isolation that the harness knows; "" is the usual one. It may wait for another to end, but not in a [LevelHarness].
	Begin(ctx context.Context, level string) (Tx, error)
	// Again reports whether an error of a transaction's method, or of Begin, says that the transaction met another, did nothing, and is to be begun again.
	Again(err error) bool
	// Effects lists the committed effects, in any order, each as often as it was made.
	Effects(ctx context.Context) ([]string, error)
	// Advance makes it as if d, which is not negative, had passed. No other call runs meanwhile.
	Advance(ctx context.Context, d time.Duration) error
	// Check looks at the whole store for what must never be, beyond what its replies show.
	Check(ctx context.Context) error
}

// Tx is a consumer's transaction. It is used by one goroutine, and ended by Commit or Rollback.
type Tx interface {
	// Once is the store's own, in this transaction. What fn gets is what the store's own gives to it, or ctx.
	Once(ctx context.Context, consumer, messageID string, fn func(context.Context) error) (inbox.Result, error)
	// Effect writes a row.
	Effect(ctx context.Context, text string) error
	// Look reads something, so that from there on the transaction sees what its level lets it see.
	Look(ctx context.Context) error
	Commit(ctx context.Context) error
	// Rollback is also how a transaction ends after an error.
	Rollback(ctx context.Context) error
}

// LevelHarness is a harness of a store where transactions go on beside each other.
type LevelHarness interface {
	Harness
	// Levels names the levels of isolation that transactions can have.
	Levels() []string
}

// Window is what the inbox of every harness is made with.
const Window = time.Hour

// Cases is what every store must do.
func Cases() []Case[Harness] { return slices.Concat(onceCases(), raceCases(), pruneCases()) }

// LevelCases is what a store does besides where transactions go on beside each other.
func LevelCases() []Case[LevelHarness] { return levelCases() }
