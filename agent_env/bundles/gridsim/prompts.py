"""What the model is told before it calls anything; the site's numbers come from the parameters."""

from agent_env.bundles.gridsim.parameters import site

COARSE_PROMPT = "Plan the battery.\n"


def fine_prompt() -> str:
    """The rules of a day, as `simulation.simulate` applies them."""
    battery, generator, line = site().battery, site().generator, site().connection
    return (
        "You run a small grid for one day. Call read_day once, then commit_schedule once, "
        "to make the day as cheap as you can.\n"
        f"Battery: {battery.capacity_kwh:g} kWh, at most {battery.power_kw:g} kW in or out; "
        f"{battery.charge_efficiency:.0%} of what is charged is stored, "
        f"{battery.discharge_efficiency:.0%} of what is taken out is delivered. It holds "
        f"{battery.start_kwh:g} kWh at hour 0; what is missing from that after hour 23 is bought "
        "back at the day's highest price, what is left over is worth nothing.\n"
        f"Generator: 0 to {generator.power_kw:g} kW, off before hour 0, changes by at most "
        f"{generator.ramp_kw_per_hour:g} kW an hour, costs {generator.cost_usd_per_mwh:g} "
        "USD/MWh.\n"
        f"Line: what is lacking is bought at the hour's price plus {line.fee_usd_per_mwh:g} "
        f"USD/MWh, at most {line.import_kw:g} kW; a surplus is sold at the hour's price, at most "
        f"{line.export_kw:g} kW, the rest is lost.\n"
    )
