from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="apikey",
            name="traffic_consent",
            field=models.BooleanField(default=False),
        ),
    ]
