export function Brand() {
  return (
    <span className="brand">
      <img src="/favicon.svg" alt="" width="26" height="26" />
      Tursiops
    </span>
  )
}
