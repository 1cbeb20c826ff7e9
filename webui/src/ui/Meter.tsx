import { percent } from './units'

const FULL_SHARE = 0.9

/** A labelled bar of how much of something is in use; the words say what the length shows. */
export function Meter({
  label,
  value,
  max,
  text,
}: {
  label: string
  value: number
  max: number
  text: string
}) {
  const share = max > 0 ? value / max : 0
  return (
    <div className="meter">
      <span className="meter-label">{label}</span>
      {/* biome-ignore lint/a11y/useSemanticElements: browsers let no page style the inside of <meter> */}
      <div
        className="meter-track"
        role="meter"
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={percent(share)}
        aria-valuetext={text}
      >
        <div
          className={share > FULL_SHARE ? 'meter-fill full' : 'meter-fill'}
          style={{ width: `${percent(share)}%` }}
        />
      </div>
      <span className="meter-text muted small">{text}</span>
    </div>
  )
}
