// Package hold reserves named items, or quantities of them, for an actor until a deadline by the store's clock: seats while a buyer pays, stock while an order is made.
//
//   - All lines of a hold, or none. Demand for one item is summed before it is compared with what is free.
//   - Free is what is neither sold nor held by a hold that is live. A hold whose time has passed holds nothing, whether or not anybody has noticed: there is no sweeper.
//   - A hold ends once: confirmed, released, expired, or late. Late is a payment that came when the hold had expired: it is recorded with its reference, so that it can be given back, and sells nothing.
//   - Who confirms does it in the transaction of the sale, so that there is never a sale without its hold, nor a hold confirmed without its sale.
//   - The deadline is a duration by the store's clock. A client's clock neither extends nor shortens it.
//
// A hold is ownership of what is for sale, not of work: for that see package lease. What the payment did is the business of package operation.
package hold
