"""Names and things that mailboxes are made of. Pairs are meant to be mistaken for each other."""

from __future__ import annotations

OWNER = "Sam Keller"

FIRST_NAMES = (
    "Ada", "Anton", "Bela", "Clara", "Dora", "Emil", "Felix", "Greta", "Hanna", "Ines", "Jonas",
    "Karla", "Leo", "Mara", "Nils", "Olga", "Paul", "Rosa", "Tilda", "Viktor",
)  # fmt: skip

LAST_NAMES = (
    "Abel", "Brandt", "Carlsen", "Dietz", "Ebner", "Falk", "Gruber", "Holm", "Iversen", "Jansen",
    "Krause", "Lorenz", "Moser", "Nolte", "Olsen", "Peters", "Quist", "Roth", "Sander", "Thiel",
)  # fmt: skip

VENDORS = (
    ("Nordwind Energy", "Nordwand Energy"),
    ("Blue Harbor Printing", "Blue Harvest Printing"),
    ("Silverline Telecom", "Silverlane Telecom"),
    ("Green Valley Water", "Green Alley Water"),
    ("Oakfield Cleaning", "Oakland Cleaning"),
    ("Redstone Security", "Redstart Security"),
    ("Bright Path Hosting", "Bright Patch Hosting"),
    ("Kestrel Couriers", "Kettle Couriers"),
)

SHOPS = (
    "Lampenhaus", "Tidy Desk", "Papermill", "Garden Corner", "Cable Barn", "Bookmark Lane",
    "Chair & Co", "Kitchenry",
)  # fmt: skip

ITEMS = (
    ("desk lamp", "floor lamp"),
    ("office chair", "garden chair"),
    ("coffee grinder", "coffee kettle"),
    ("monitor cable", "network cable"),
    ("notebook set", "notebook stand"),
    ("wall clock", "wall shelf"),
    ("plant pot", "plant stand"),
    ("keyboard tray", "keyboard cover"),
)

COLOURS = ("black", "white", "blue", "green", "grey", "red")

NEWSLETTERS = (
    ("Market Morning", "Market Evening"),
    ("Data Digest", "Design Digest"),
    ("Travel Letter", "Trail Letter"),
    ("Kitchen Weekly", "Garden Weekly"),
    ("Startup Signal", "Startup Sketch"),
    ("City Culture", "City Climbing"),
)

ISSUES = (
    "rail passes", "home batteries", "soup for winter", "used bikes", "night trains",
    "small fonts", "rooftop gardens", "cheap museums", "bread at home", "quiet phones",
    "old maps", "rain barrels",
)  # fmt: skip

TOPICS = (
    "the budget review", "the office move", "the spring workshop", "the supplier talks",
    "the website relaunch", "the safety training", "the summer party", "the audit",
    "the product photos", "the hiring round", "the warehouse tour", "the price list",
)  # fmt: skip

PLACES = ("room 2", "room 5", "the canteen", "the library", "the small hall", "the meeting corner")

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")

TIMES = ("08:30", "09:15", "10:00", "11:30", "13:00", "14:15", "15:30", "16:45")

MONTHS = ("January", "February", "March", "April")

CHATTER = (
    ("Lunch on Friday", "Shall we try the new place at the corner? {name} says it is good."),
    ("Parking next week", "Half of the spaces are closed until the painting is done."),
    ("Lost umbrella", "Somebody left a yellow umbrella in {place}. It waits at the desk."),
    ("Backup report", "All backups of last night ended well. Nothing to do."),
    ("Birthday card", "The card for {name} goes round. Please sign it by tomorrow."),
    ("Coffee machine", "It is repaired. Please rinse it in the evening."),
    ("Fire drill", "There will be a drill this month. Use the stairs and meet outside."),
    ("Holiday list", "Please enter your days in the shared list. {name} looks after it."),
    ("New door code", "The code at the side door changes at the end of the month."),
    ("Thanks", "Thank you for your help with the boxes in {place}!"),
    ("Library books", "Two of the books from {place} are overdue."),
    ("Window left open", "A window in {place} was open all night. Please look before you go."),
)
"""Subject and text of mail that nobody asks about; `{name}` and `{place}` are filled in."""
