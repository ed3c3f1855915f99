package operation

import "fmt"

// Step is what comes next for an operation, and whose turn it is. The zero value is none.
type Step int

// The steps.
const (
	Idle  Step = iota + 1 // nothing: it is decided, or only an operator or late evidence can decide it
	Work                  // a worker may begin an attempt
	Watch                 // a worker is at work; when its claim expires, its attempt is ended
	Ask                   // the provider is to be asked
	Undo                  // it succeeded although its cancelling was wished for: it is to be compensated
)

// String is the step as texts, columns and JSON use it.
func (s Step) String() string {
	if s < Idle || s > Undo {
		return fmt.Sprintf("Step(%d)", int(s))
	}
	return [...]string{"idle", "work", "watch", "ask", "undo"}[s-1]
}

// Means is what there is to go on with.
type Means struct {
	Again  bool // another attempt would end within the provider's window, and their number allows it
	Asks   bool // the provider can be asked
	Undoes bool // the effect can be compensated
	Undone bool // and was
}

// Next is the step that follows from the state. An uncertain operation is attempted again within the window, which both learns and achieves; but not where its cancelling is
// wished for and the provider can be asked.
func (o *Operation) Next(m Means) Step {
	switch o.State {
	case Pending:
		return Work
	case Attempting:
		return Watch
	case Uncertain:
		switch {
		case m.Again && !(o.CancelWished && m.Asks):
			return Work
		case m.Asks:
			return Ask
		}
	case Succeeded:
		if o.CancelWished && m.Undoes && !m.Undone {
			return Undo
		}
	case Failed, Cancelled:
	}
	return Idle
}
