package payments

import "github.com/tenure-go/tenure/operation"

// Notice is what a customer is shown.
type Notice struct {
	Text  string
	Ask   bool // show the page again in a while: it is not over
	Again bool // the customer may be offered another try, which is another order with another id
}

// Tell is what a state means for the customer's page. Another try is offered only where the first one cannot take money any more.
func Tell(rec *operation.Record) Notice {
	switch rec.State {
	case operation.Pending:
		return Notice{Text: "Your payment will begin in a moment.", Ask: true}
	case operation.Attempting:
		return Notice{Text: "Your payment is under way.", Ask: true}
	case operation.Uncertain:
		if rec.CancelWished {
			return Notice{Text: "We are giving your order up. Should the payment have gone through, you get your money back.", Ask: true}
		}
		return Notice{Text: "Your bank has not told us yet whether the payment went through. Please do not pay again: we will tell you.", Ask: true}
	case operation.Succeeded:
		if rec.UndoneBy != "" {
			return Notice{Text: "Your payment went through, and is being given back."}
		}
		return Notice{Text: "Thank you. Your payment went through."}
	case operation.Failed, operation.Cancelled:
		return Notice{Text: "You have not been charged.", Again: true}
	}
	return Notice{Text: "We cannot look at your payment now. Please do not pay again.", Ask: true} // the store could not be asked
}
